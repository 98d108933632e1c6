// SPDX-License-Identifier: Apache-2.0

package cdi_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"

	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/pkg/cdi"
)

// env is a registry of /etc/cdi and /run/cdi below a temporary directory.
type env struct {
	*testing.T
	host hostfs.Root
	top  string // the root's directory, or a part of the host's tree
	dirs []string
	r    *cdi.Cache
}

// mode is how a registry reads the disk.
type mode struct {
	name    string
	fixture bool
	opts    cdi.Options
}

var modes = []mode{
	{name: "host"},
	{name: "fixture", fixture: true},
	{name: "unwatched", opts: cdi.Options{DisableWatch: true}},
}

func newEnv(t *testing.T, m mode) *env {
	t.Helper()
	e := &env{T: t, host: hostfs.Host(), top: t.TempDir()}
	e.dirs = []string{e.top + "/etc/cdi", e.top + "/run/cdi"}
	if m.fixture {
		host, err := hostfs.New(e.top)
		if err != nil {
			t.Fatal(err)
		}
		e.host, e.dirs = host, []string{"/etc/cdi", "/run/cdi"}
	}
	for _, d := range []string{"/etc/cdi", "/run/cdi"} {
		e.must(os.MkdirAll(e.top+d, 0o755))
	}
	e.open(m.opts)
	return e
}

func (e *env) open(opts cdi.Options) {
	e.Helper()
	opts.Root, opts.SpecDirs = e.host.Dir(), e.dirs
	r, err := cdi.NewCache(opts)
	e.must(err)
	e.r = r
	e.Cleanup(func() {
		if err := r.Close(); err != nil {
			e.Error(err)
		}
	})
}

func (e *env) must(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

// writeInPlace writes a file without a rename.
func (e *env) writeInPlace(file, text string) {
	e.Helper()
	e.must(os.WriteFile(e.top+file, []byte(text), 0o644))
	e.must(os.Chmod(e.top+file, 0o644))
}

// renameIntoPlace writes a temporary file and renames it.
func (e *env) renameIntoPlace(file, text string) {
	e.Helper()
	tmp := e.top + filepath.Dir(file) + "/.tmp"
	e.must(os.WriteFile(tmp, []byte(text), 0o644))
	e.must(os.Rename(tmp, e.top+file))
}

// specText returns a spec file of kind v.com/c. Each device sets the variable FROM to the value.
func specText(value string, devices ...string) string {
	var list []string
	for _, d := range devices {
		list = append(list, fmt.Sprintf(`{"name":%q,"containerEdits":{"env":["FROM=%s"]}}`, d, value))
	}
	return fmt.Sprintf(`{"cdiVersion":"0.5.0","kind":"v.com/c","devices":[%s]}`, strings.Join(list, ","))
}

// wantDevice checks that device v.com/c=name has the value of its spec file, or does not exist if the value is "".
func (e *env) wantDevice(name, value string) {
	e.Helper()
	d, err := e.r.Snapshot().Device("v.com/c=" + name)
	switch {
	case value == "" && err == nil:
		e.Fatalf("device %s exists, from %s", name, d.File)
	case value == "" && !errors.Is(err, errdefs.ErrNotFound):
		e.Fatalf("device %s: %v", name, err)
	case value != "" && err != nil:
		e.Fatalf("device %s: %v", name, err)
	case value != "" && d.Edits.Env[0] != "FROM="+value:
		e.Fatalf("device %s has %q, want %q", name, d.Edits.Env[0], value)
	}
}

// wantRefused checks that a file has an error that contains a text.
func (e *env) wantRefused(file, text string) {
	e.Helper()
	for _, f := range e.r.Snapshot().Files() {
		if strings.HasSuffix(f.Path, file) {
			if f.Err == nil || !strings.Contains(f.Err.Error(), text) || !strings.Contains(f.Err.Error(), file) {
				e.Fatalf("%s: error %v, want one with %q", file, f.Err, text)
			}
			return
		}
	}
	e.Fatalf("%s is not listed", file)
}

func (e *env) listFiles() []string {
	var out []string
	for _, f := range e.r.Snapshot().Files() {
		out = append(out, strings.TrimPrefix(f.Path, e.top))
	}
	return out
}

// eachMode runs a test in every mode.
func eachMode(t *testing.T, f func(e *env)) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) { f(newEnv(t, m)) })
	}
}

func TestLookupReturnsDeviceOrReason(t *testing.T) {
	eachMode(t, func(e *env) {
		e.renameIntoPlace("/etc/cdi/a.json", `{"cdiVersion":"v0.6.0","kind":"v.com/c","annotations":{"a":"b"},"containerEdits":{"env":["ALL=1"]},
			"devices":[{"name":"0","containerEdits":{"env":["A=0"]}},{"name":"1","annotations":{"c":"d"},"containerEdits":{"env":["A=1"]}}]}`)
		s := e.r.Snapshot()
		d, err := s.Device("v.com/c=1")
		e.must(err)
		if d.File != e.dirs[0]+"/a.json" || d.Index != 1 || d.Priority != 0 || d.CDIVersion != "0.6.0" || d.Kind != "v.com/c" || d.Name != "v.com/c=1" ||
			d.Annotations["c"] != "d" || d.SpecAnnotations["a"] != "b" || d.Edits.Env[0] != "A=1" || d.SpecEdits.Env[0] != "ALL=1" {
			e.Errorf("device is %+v", d)
		}
		// The result belongs to the caller.
		d.Edits.Env[0], d.SpecEdits.Env, d.Annotations["c"] = "changed", nil, "changed"
		again, err := s.Device("v.com/c=1")
		e.must(err)
		if again.Edits.Env[0] != "A=1" || again.SpecEdits.Env[0] != "ALL=1" || again.Annotations["c"] != "d" {
			e.Errorf("a caller's change is visible to others: %+v", again)
		}
		if diff := cmp.Diff([]string{"v.com/c=0", "v.com/c=1"}, s.Devices()); diff != "" {
			e.Error(diff)
		}
		if e.dirs[0] == "/etc/cdi" || s.Dirs()[0].Watched {
			if first := e.r.Snapshot(); first != e.r.Snapshot() {
				e.Error("a new snapshot although nothing changed")
			}
		}
	})
}

// TestLaterDirectoryTakesPrecedence checks that the device of a later directory is used, and that a device with two
// declarations of one priority is not usable.
func TestLaterDirectoryTakesPrecedence(t *testing.T) {
	eachMode(t, func(e *env) {
		e.renameIntoPlace("/etc/cdi/a.json", specText("low", "x", "y"))
		e.renameIntoPlace("/run/cdi/a.json", specText("high", "x"))
		e.wantDevice("x", "high")
		e.wantDevice("y", "low")
		e.renameIntoPlace("/run/cdi/b.json", specText("other", "x", "z"))
		_, err := e.r.Snapshot().Device("v.com/c=x")
		var conflict *cdi.ConflictError
		if !errors.As(err, &conflict) || !errors.Is(err, errdefs.ErrConflict) ||
			!slices.Equal(conflict.Files, []string{e.dirs[1] + "/a.json", e.dirs[1] + "/b.json"}) {
			e.Fatalf("conflict: %v", err)
		}
		e.wantRefused("/run/cdi/a.json", "v.com/c=x")
		e.wantRefused("/run/cdi/b.json", "v.com/c=x")
		e.wantDevice("z", "other") // the other devices of the file are usable
		if devices := e.r.Snapshot().Devices(); slices.Contains(devices, "v.com/c=x") {
			e.Error("the device in conflict is listed")
		}
		e.must(os.Remove(e.top + "/run/cdi/b.json"))
		e.wantDevice("x", "high")
		e.wantDevice("z", "")
		for _, f := range e.r.Snapshot().Files() {
			if f.Err != nil {
				e.Errorf("%s still has %v", f.Path, f.Err)
			}
		}
		e.must(os.Remove(e.top + "/run/cdi/a.json"))
		e.wantDevice("x", "low")
	})
}

// TestShadowedConflict checks that a conflict between two files of low priority is reported, and that the device
// of high priority stays usable.
func TestShadowedConflict(t *testing.T) {
	eachMode(t, func(e *env) {
		e.renameIntoPlace("/etc/cdi/a.json", specText("a", "x"))
		e.renameIntoPlace("/etc/cdi/b.json", specText("b", "x"))
		e.renameIntoPlace("/run/cdi/c.json", specText("high", "x"))
		e.wantDevice("x", "high")
		for _, f := range e.r.Snapshot().Files() {
			var conflict *cdi.ConflictError
			if low := f.Priority == 0; errors.As(f.Err, &conflict) != low || low && !conflict.Shadowed {
				e.Errorf("%s has %v", f.Path, f.Err)
			}
		}
		e.must(os.Remove(e.top + "/run/cdi/c.json"))
		if _, err := e.r.Snapshot().Device("v.com/c=x"); !errors.Is(err, errdefs.ErrConflict) {
			e.Errorf("without the high file: %v", err)
		}
	})
}

// TestDirectoryUnderTwoNamesShadowsNothing covers /run/cdi and /var/run/cdi, where one is a symlink to the other.
func TestDirectoryUnderTwoNamesShadowsNothing(t *testing.T) {
	eachMode(t, func(e *env) {
		e.must(os.Symlink("run", e.top+"/var"))
		e.dirs = append(e.dirs, strings.Replace(e.dirs[1], "/run/cdi", "/var/cdi", 1))
		e.renameIntoPlace("/run/cdi/a.json", specText("a", "x"))
		e.renameIntoPlace("/etc/cdi/b.json", specText("b", "x"))
		shadowed := newCache(e.T, e, cdi.Options{DisableWatch: true}).Snapshot().Shadowed()
		if len(shadowed) != 1 || filepath.Base(shadowed[0].Path) != "b.json" {
			e.Errorf("shadowed files are %+v", shadowed)
		}
	})
}

// TestOnlyJSONAndYAMLFilesAreRead covers extensions, subdirectories, and directories with a file's name.
func TestOnlyJSONAndYAMLFilesAreRead(t *testing.T) {
	eachMode(t, func(e *env) {
		for i, name := range []string{"a.json", "b.yaml", "c.yml", "d.JSON", "e.json.bak", "f", ".hidden.json", ".json"} {
			e.renameIntoPlace("/etc/cdi/"+name, specText("x", fmt.Sprint("d", i)))
		}
		e.must(os.MkdirAll(e.top+"/etc/cdi/dir.json", 0o755))
		e.must(os.MkdirAll(e.top+"/etc/cdi/sub", 0o755))
		e.renameIntoPlace("/etc/cdi/sub/g.json", specText("x", "sub"))
		var got []string
		for _, f := range e.r.Snapshot().Files() {
			got = append(got, filepath.Base(f.Path))
		}
		if diff := cmp.Diff([]string{".hidden.json", ".json", "a.json", "b.yaml"}, got); diff != "" {
			e.Error(diff)
		}
	})
	t.Run("configured", func(t *testing.T) {
		e := newEnv(t, mode{opts: cdi.Options{Extensions: []string{".yml"}}})
		e.renameIntoPlace("/etc/cdi/a.json", specText("x", "a"))
		e.renameIntoPlace("/etc/cdi/b.yml", specText("x", "b"))
		e.wantDevice("a", "")
		e.wantDevice("b", "x")
	})
}

// TestBrokenFileHarmsNoOther checks that a broken file is refused alone.
func TestBrokenFileHarmsNoOther(t *testing.T) {
	eachMode(t, func(e *env) {
		e.renameIntoPlace("/etc/cdi/good.json", specText("good", "x"))
		e.renameIntoPlace("/etc/cdi/bad.json", `{"cdiVersion":"0.5.0","kind":"v.com/c","devices":[{"name":"y","containerEdits":{"mounts":[{"hostPath":"/a","containerPath":"b"}]}}]}`)
		e.wantDevice("x", "good")
		e.wantRefused("/etc/cdi/bad.json", `devices[0].containerEdits.mounts[0].containerPath: invalid value "b": must be an absolute path`)
		_, err := e.r.Snapshot().Device("v.com/c=y")
		var nf *cdi.NotFoundError
		if !errors.As(err, &nf) || nf.Reason != cdi.Refused {
			e.Errorf("device of a refused file: %v", err)
		}
		e.renameIntoPlace("/etc/cdi/bad.json", specText("mended", "y"))
		e.wantDevice("y", "mended")
	})
}

func TestNewRefusesRelative(t *testing.T) {
	if _, err := cdi.NewCache(cdi.Options{SpecDirs: []string{"etc/cdi"}}); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("relative directory: %v", err)
	}
}

func TestDirsFromEnvSplitsAndCleansPaths(t *testing.T) {
	for value, want := range map[string][]string{
		"": nil, ":": nil, "/a": {"/a"}, "/a:/b/": {"/a", "/b"}, " /a : :/b": {"/a", "/b"},
	} {
		got, err := cdi.DirsFromEnv(value)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%q: %v %s", value, err, diff)
		}
	}
	for _, value := range []string{"a", "/a:./b", "~/cdi", "/a,b:c"} {
		got, err := cdi.DirsFromEnv(value)
		if got != nil || !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "CDI_SPEC_DIRS") {
			t.Errorf("%q: %q, %v", value, got, err)
		}
	}
}

// TestClosedCacheKeepsLastSnapshot checks that nothing is read after Close.
func TestClosedCacheKeepsLastSnapshot(t *testing.T) {
	e := newEnv(t, modes[0])
	e.renameIntoPlace("/etc/cdi/a.json", specText("a", "a"))
	e.wantDevice("a", "a")
	e.must(e.r.Close())
	e.must(e.r.Close())
	e.renameIntoPlace("/etc/cdi/b.json", specText("b", "b"))
	e.wantDevice("a", "a")
	e.wantDevice("b", "")
}

// TestLargeFileIsRead has a device for each of 4,000 channels and one for all of them, as nvidia-ctk writes for IMEX.
func TestLargeFileIsRead(t *testing.T) {
	e := newEnv(t, mode{})
	var devices []string
	node := func(i int) string {
		return fmt.Sprintf(`{"path":"/dev/nvidia-caps-imex-channels/channel%d","type":"c","major":240,"minor":%d}`, i, i)
	}
	var all []string
	for i := range 4000 {
		all = append(all, node(i))
		devices = append(devices, fmt.Sprintf(`{"name":"%d","containerEdits":{"deviceNodes":[%s]}}`, i, node(i))+strings.Repeat(" ", 200))
	}
	devices = append(devices, `{"name":"all","containerEdits":{"deviceNodes":[`+strings.Join(all, ",")+`]}}`)
	e.renameIntoPlace("/etc/cdi/imex.json", `{"cdiVersion":"0.5.0","kind":"v.com/imex","devices":[`+strings.Join(devices, ",")+`]}`)
	d, err := e.r.Snapshot().Device("v.com/imex=all")
	if err != nil || len(d.Edits.DeviceNodes) != 4000 {
		t.Errorf("%v, %v", d, err)
	}
}
