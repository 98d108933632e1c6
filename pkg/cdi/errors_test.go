// SPDX-License-Identifier: Apache-2.0

package cdi_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"

	"github.com/jackfield/jackfield/pkg/cdi"
)

// TestUnusableDevicesHaveHelpfulMessages checks the messages about unusable devices.
func TestUnusableDevicesHaveHelpfulMessages(t *testing.T) {
	e := newEnv(t, mode{fixture: true})
	e.renameIntoPlace("/etc/cdi/gpu.json", strings.ReplaceAll(specText("x", "gpu0", "gpu1", "gpu10"), "v.com/c", "nvidia.com/gpu"))
	e.renameIntoPlace("/etc/cdi/broken.json", `{"cdiVersion":"0.5.0","kind":"nvidia.com/gpu","devices":[{"name":"mig0","containerEdits":{"env":["A"]}}]}`)
	e.renameIntoPlace("/etc/cdi/twice-a.json", specText("a", "twice"))
	e.renameIntoPlace("/etc/cdi/twice-b.json", specText("b", "twice"))
	for i := range 5 {
		e.renameIntoPlace(fmt.Sprintf("/run/cdi/junk%d.json", i), "{")
	}
	e.must(os.Chmod(e.top+"/run/cdi/junk1.json", 0o666))
	const searched = "; searched: /etc/cdi, /run/cdi; refused files: "
	const broken = `load CDI spec /etc/cdi/broken.json:1:98: devices[0].containerEdits.env[0]: invalid value "A": must be NAME=VALUE; `
	const junk = `load CDI spec /run/cdi/junk0.json:1:2: found the end of the text: a key in double quotation marks is required: the text is cut short; ` +
		`load CDI spec /run/cdi/junk1.json: found file "/run/cdi/junk1.json", mode 0666: it must be writable by its owner alone: run ` + "`chmod go-w /run/cdi/junk1.json`"
	s := e.r.Snapshot()
	for _, c := range []struct {
		name   string
		text   string
		reason cdi.Reason
		is     error
	}{
		{"nvidia.com/gpu=gpu2", `resolve CDI device "nvidia.com/gpu=gpu2": kind "nvidia.com/gpu" has no such device; nearest: nvidia.com/gpu=gpu0, nvidia.com/gpu=gpu1, nvidia.com/gpu=gpu10` +
			"; files of this kind: /etc/cdi/broken.json, /etc/cdi/gpu.json" + searched + broken + junk + " (and 3 more)", cdi.NoDevice, errdefs.ErrNotFound},
		{"nvidia.com/gpu=mig0", `resolve CDI device "nvidia.com/gpu=mig0": only refused spec files declare it` +
			"; files of this kind: /etc/cdi/broken.json, /etc/cdi/gpu.json" + searched + broken + junk + " (and 3 more)", cdi.Refused, errdefs.ErrNotFound},
		{"nvidia.com/gpus=gpu1", `resolve CDI device "nvidia.com/gpus=gpu1": no spec file for kind "nvidia.com/gpus"; nearest: nvidia.com/gpu=gpu1` +
			searched + broken + junk + " (and 3 more)", cdi.NoSpec, errdefs.ErrNotFound},
		{"v.com/c=twice", `resolve CDI device "v.com/c=twice": declared at the same priority by /etc/cdi/twice-a.json, /etc/cdi/twice-b.json; keep it in one of them`, 0, errdefs.ErrConflict},
		{"nvidia", `resolve CDI device "nvidia": must be a vendor, a class and a name, such as vendor.com/class=name`, 0, errdefs.ErrInvalidArgument},
		{"", `resolve CDI device "": must be a vendor, a class and a name, such as vendor.com/class=name`, 0, errdefs.ErrInvalidArgument},
		{"v.com/c=a/b", `resolve CDI device "v.com/c=a/b": the name, after the =, must be letters, digits, '-', '_', '.' and ':', with a letter or a digit at both ends`, 0, errdefs.ErrInvalidArgument},
		{"v.com/c-=a", `resolve CDI device "v.com/c-=a": the class, after the /, must be letters, digits, '-', '_' and '.', with a letter first and a letter or a digit last`, 0, errdefs.ErrInvalidArgument},
	} {
		_, err := s.Device(c.name)
		if err == nil {
			t.Errorf("%q is found", c.name)
			continue
		}
		if diff := cmp.Diff(c.text, err.Error()); diff != "" {
			t.Errorf("%q (-want +got):\n%s", c.name, diff)
		}
		if !errors.Is(err, c.is) {
			t.Errorf("%q: %v is no %v", c.name, err, c.is)
		}
		var nf *cdi.NotFoundError
		if errors.As(err, &nf) {
			if x := nf.Explain(); nf.Reason != c.reason || nf.Kind == "" || len(x.Failed) != 6 {
				t.Errorf("%q: %v, %+v", c.name, nf.Reason, x)
			}
		}
	}
	// All devices of a kind without a usable device: the error names the conflicts.
	if _, err := s.Kind("v.com/c"); err == nil || !strings.Contains(err.Error(), `kind "v.com/c" has no usable device; v.com/c=twice is declared at the same priority by `+
		"/etc/cdi/twice-a.json, /etc/cdi/twice-b.json: keep it in one of them; files of this kind: /etc/cdi/twice-a.json, /etc/cdi/twice-b.json; searched") {
		t.Errorf("kind with two declarations of each device: %v", err)
	}
	for kind, reason := range map[string]cdi.Reason{"v.com/c": cdi.NoDevices, "v.com/none": cdi.NoSpec} {
		var nf *cdi.NotFoundError
		if _, err := s.Kind(kind); !errors.As(err, &nf) || nf.Reason != reason {
			t.Errorf("kind %q: %v", kind, err)
		}
	}
	if _, err := s.Kind("nokind"); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("no kind: %v", err)
	}
}

// TestNotFoundErrorNamesDirectoryError checks that the error of a device names an unreadable
// directory.
func TestNotFoundErrorNamesDirectoryError(t *testing.T) {
	e := newEnv(t, mode{fixture: true})
	e.must(os.RemoveAll(e.top + "/etc/cdi"))
	e.writeInPlace("/etc/cdi", "")
	_, err := e.r.Snapshot().Device("v.com/c=x")
	if err == nil || !strings.Contains(err.Error(), `read CDI spec directory "/etc/cdi": not a directory`) {
		t.Errorf("error is %v", err)
	}
}

// TestSkippedNamesRefusedFilesAndConflicts checks the list of what "all" leaves out: refused files of the kind, by
// directory and path, then devices with several declarations, by name.
func TestSkippedNamesRefusedFilesAndConflicts(t *testing.T) {
	e := newEnv(t, modes[0])
	left := func(want ...string) {
		t.Helper()
		var got []string
		for _, err := range e.r.Snapshot().Skipped("v.com/c") {
			var bad *cdi.SpecError
			var conflict *cdi.ConflictError
			switch {
			case errors.As(err, &bad):
				got = append(got, strings.TrimPrefix(bad.Path, e.top))
			case errors.As(err, &conflict):
				got = append(got, conflict.Name)
			default:
				t.Errorf("%T: %v", err, err)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("left out: %q, want %q", got, want)
		}
	}
	bad := func(kind string) string {
		return `{"cdiVersion":"0.5.0","kind":"` + kind + `","devices":[{"name":"x","containerEdits":{"env":["A"]}}]}`
	}
	left()
	e.renameIntoPlace("/etc/cdi/a.json", specText("x", "a", "b"))
	e.renameIntoPlace("/etc/cdi/other.json", bad("v.com/other"))
	e.renameIntoPlace("/etc/cdi/nothing.json", "{")
	left()
	e.renameIntoPlace("/etc/cdi/c.json", specText("y", "10", "b", "2", "a"))
	left("v.com/c=a", "v.com/c=b")
	e.renameIntoPlace("/etc/cdi/y.json", bad("v.com/c"))
	e.renameIntoPlace("/run/cdi/x.json", bad("v.com/c"))
	left("/etc/cdi/y.json", "/run/cdi/x.json", "v.com/c=a", "v.com/c=b")
	e.renameIntoPlace("/etc/cdi/u.json", bad("v.com/c"))
	e.renameIntoPlace("/etc/cdi/v.json", bad("v.com/c"))
	left("/etc/cdi/u.json", "/etc/cdi/v.json", "/etc/cdi/y.json", "/run/cdi/x.json", "v.com/c=a", "v.com/c=b")
}

func TestExpandLeavesOutSecondNamesOfOneDevice(t *testing.T) {
	const uuid = "GPU-6c1f2d1e-0000-4000-8000-00000000000a"
	node := func(name, path, env string) string {
		return fmt.Sprintf(`{"name":%q,"containerEdits":{"deviceNodes":[{"path":%q},{"path":"/dev/ctl"}],"env":["V=%s"]}}`, name, path, env)
	}
	turned := func(name, path, env string) string {
		return fmt.Sprintf(`{"name":%q,"containerEdits":{"env":["V=%s"],"deviceNodes":[{"path":"/dev/ctl"},{"path":%q}]}}`, name, env, path)
	}
	file := func(devices ...string) string {
		return `{"cdiVersion":"0.5.0","kind":"v.com/c","devices":[` + strings.Join(devices, ",") + `]}`
	}
	for _, c := range []struct {
		what  string
		files []string
		want  []string
	}{
		{"every device, in natural order", []string{file(node("10", "/dev/a", "1"), node("2", "/dev/b", "2"))}, []string{"2", "10"}},
		{"a device of that name", []string{file(node("0", "/dev/a", "1"), node("all", "/dev/x", "2"))}, []string{"all"}},
		{"equal edits in another order", []string{file(node("0", "/dev/a", "x"), turned("b", "/dev/a", "x"), node("c", "/dev/c", "x"))}, []string{"0", "c"}},
		{"index and UUID, env differs", []string{file(node("0", "/dev/a", "0"), node("1", "/dev/b", "1"), turned(uuid, "/dev/a", uuid))}, []string{"0", "1"}},
		{"index and UUID in two files", []string{file(node("0", "/dev/a", "0")), file(turned(uuid, "/dev/a", uuid))}, []string{"0"}},
		{"shared node, not the same device", []string{file(node("a", "/dev/net/tun", "a"), node("b", "/dev/net/tun", "b"))}, []string{"a", "b"}},
		{"no nodes", []string{specText("x", "a"), specText("y", "b")}, []string{"a", "b"}},
		{"one in conflict", []string{specText("x", "a", "b"), specText("y", "b")}, []string{"a"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			e := newEnv(t, modes[0])
			for i, f := range c.files {
				e.renameIntoPlace(fmt.Sprintf("/etc/cdi/%d.json", i), f)
			}
			list, err := e.r.Snapshot().Expand("v.com/c")
			e.must(err)
			var got []string
			for _, d := range list {
				got = append(got, strings.TrimPrefix(d.Name, "v.com/c="))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	e := newEnv(t, modes[0])
	e.renameIntoPlace("/etc/cdi/a.json", specText("x", "all", "a"))
	e.renameIntoPlace("/etc/cdi/b.json", specText("y", "all", "b"))
	if _, err := e.r.Snapshot().Expand("v.com/c"); !errors.Is(err, errdefs.ErrConflict) {
		t.Errorf("conflict with \"all\": %v", err)
	}
	if _, err := e.r.Snapshot().Expand("v.com/d"); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("no kind: %v", err)
	}
}

// TestErrorWhereEveryFileIsRefused checks that the error does not claim that there are no files.
func TestErrorWhereEveryFileIsRefused(t *testing.T) {
	e := newEnv(t, mode{fixture: true})
	e.renameIntoPlace("/etc/cdi/a.json", `{"cdiVersion":"0.6.0","kind":"a.com/g","devices":[{"name":"x","containerEdits":{"env":["A"]}}]}`)
	_, err := e.r.Snapshot().Device("a.com/g=y")
	if err == nil || !strings.Contains(err.Error(), `"a.com/g=y": every spec file for kind "a.com/g" is refused; files of this kind: /etc/cdi/a.json; searched: `) {
		t.Errorf("got %v", err)
	}
}

// TestErrorWithoutDirectories checks that the error names missing directories, and no program: other programs use the library,
// and add the remedies of their own.
func TestErrorWithoutDirectories(t *testing.T) {
	e := newEnv(t, mode{fixture: true})
	e.must(os.Remove(e.top + "/etc/cdi"))
	_, err := e.r.Snapshot().Device("nvidia.com/gpu=0")
	var none *cdi.NotFoundError
	if !errors.As(err, &none) || !strings.HasSuffix(err.Error(), "; searched: /etc/cdi (missing), /run/cdi") {
		t.Fatalf("got %v", err)
	}
	none.Remedies = []string{"run `vendor-tool`"}
	if !strings.HasSuffix(err.Error(), "/run/cdi; run `vendor-tool`") || len(none.Dirs()) != 2 {
		t.Errorf("got %v, %v", err, none.Dirs())
	}
}

// TestErrorsOfLongNamesAreBounded checks long names: a pod chooses the name, and the error appears in the pod's status.
func TestErrorsOfLongNamesAreBounded(t *testing.T) {
	e := newEnv(t, mode{fixture: true})
	e.renameIntoPlace("/etc/cdi/a.json", specText("a", "a"))
	long := strings.Repeat("n", 60000)
	for _, name := range []string{"v.com/c=" + long, "v.com/" + long + "=n", long + "/c=n", long, "v.com/c=" + long + "-"} {
		if _, err := e.r.Snapshot().Device(name); err == nil || len(err.Error()) > 1500 {
			t.Errorf("%.20s…: %.2000v", name, err)
		}
	}
	if _, err := e.r.Snapshot().Expand("v.com/" + long); err == nil || len(err.Error()) > 1500 {
		t.Errorf("%.2000v", err)
	}
}
