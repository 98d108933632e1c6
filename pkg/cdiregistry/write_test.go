// SPDX-License-Identifier: Apache-2.0

package cdiregistry_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/jackfield/jackfield/pkg/cdiregistry"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

func goodSpec() *specs.Spec {
	mode := os.FileMode(0o666)
	return &specs.Spec{Version: "0.5.0", Kind: "v.com/c", Devices: []specs.Device{{Name: "x", ContainerEdits: specs.ContainerEdits{
		Env: []string{"FROM=written"}, DeviceNodes: []*specs.DeviceNode{{Path: "/dev/null", FileMode: &mode}},
	}}}}
}

func TestWriteSpec(t *testing.T) {
	old := unix.Umask(0o077) // which must not matter
	defer unix.Umask(old)
	e := newEnv(t, mode{fixture: true})
	for name, want := range map[string]string{"a.json": "a.json", "b.yaml": "b.yaml", "c": "c.json", "d.yml": "d.yml.json"} {
		file, err := cdiregistry.WriteSpec(e.host, "/var/deep/cdi", name, goodSpec())
		e.must(err)
		if file != "/var/deep/cdi/"+want {
			t.Errorf("%s is written to %s", name, file)
		}
		st, err := os.Stat(e.top + file)
		e.must(err)
		if st.Mode() != 0o644 {
			t.Errorf("%s has mode %v", file, st.Mode())
		}
		if diags, err := cdiregistry.ValidateFile(e.host, file, cdiregistry.ValidateOptions{CheckHost: false}); err != nil || len(diags) > 0 {
			t.Errorf("%s: %v, %v", file, diags, err)
		}
	}
	if st, err := os.Stat(e.top + "/var/deep"); err != nil || st.Mode().Perm() != 0o755 {
		t.Errorf("a directory that was made: %v, %v", st, err)
	}
	left, err := os.ReadDir(e.top + "/var/deep/cdi")
	if err != nil || len(left) != 4 {
		t.Errorf("files: %v, %v", left, err)
	}

	bad := goodSpec()
	bad.Devices[0].ContainerEdits.DeviceNodes[0].HostPath = "relative"
	var se *cdiregistry.SpecError
	if _, err := cdiregistry.WriteSpec(e.host, "/run/cdi", "bad", bad); !errors.As(err, &se) || !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("a bad spec: %v", err)
	}
	for _, name := range []string{"../x", "a/b", strings.Repeat("n", 250), "nul\x00"} {
		if _, err := cdiregistry.WriteSpec(e.host, "/run/cdi", name, goodSpec()); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("name %q: %v", name, err)
		}
	}
	if left, _ := os.ReadDir(e.top + "/run/cdi"); len(left) != 0 {
		t.Errorf("left over: %v", left)
	}

	e.want("x", "")
	_, err = cdiregistry.WriteSpec(e.host, "/run/cdi", "new", goodSpec())
	e.must(err)
	e.want("x", "written")
	e.must(cdiregistry.RemoveSpec(e.host, "/run/cdi", "new"))
	e.must(cdiregistry.RemoveSpec(e.host, "/run/cdi", "new"))
	e.must(cdiregistry.RemoveSpec(e.host, "/missing", "new"))
	e.want("x", "")
}

func TestTransient(t *testing.T) {
	e := newEnv(t, mode{fixture: true})
	for _, id := range []string{"gone/1", "alive-2"} {
		name, err := cdiregistry.TransientName("v.com/c", id)
		e.must(err)
		s := goodSpec()
		s.Devices[0].Name = strings.ReplaceAll(id, "/", ":")
		_, err = cdiregistry.WriteSpec(e.host, "/run/cdi", name, s)
		e.must(err)
	}
	e.place("/run/cdi/v.com-c.json", spec("static", "static"))
	e.place("/run/cdi/v.com-c_refused.json", strings.Replace(spec("x", "y"), "FROM=", "FROM", 1))
	e.place("/run/cdi/v.com-c_again.json", spec("again", "again"))
	list := e.r.Snapshot().Transients()
	// Somebody needs it again since the list was made.
	e.must(os.Chtimes(filepath.Join(e.top, "/run/cdi/v.com-c_again.json"), time.Time{}, time.Unix(1, 0)))
	var ids []string
	for _, tr := range list {
		ids = append(ids, tr.ID)
	}
	if diff := cmp.Diff([]string{"again", "alive-2", "gone_1", "refused"}, ids); diff != "" {
		t.Error(diff)
	}
	removed, err := cdiregistry.RemoveStale(e.host, list, func(id string) bool { return id == "alive-2" })
	e.must(err)
	if diff := cmp.Diff([]string{"/run/cdi/v.com-c_gone_1.json", "/run/cdi/v.com-c_refused.json"}, removed); diff != "" {
		t.Error(diff)
	}
	if left := e.r.Snapshot().Files(); len(left) != 3 {
		t.Errorf("left: %v", left)
	}
	for _, c := range [][2]string{{"v.com", "x"}, {"v.com/c", ""}} {
		if _, err := cdiregistry.TransientName(c[0], c[1]); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("name of %q: %v", c, err)
		}
	}
}

func TestValidateFile(t *testing.T) {
	e := newEnv(t, mode{fixture: true})
	e.must(os.MkdirAll(e.top+"/bin", 0o755))
	e.must(os.WriteFile(e.top+"/bin/hook", nil, 0o755))
	e.put("/bin/data", "")
	e.must(unix.Mkfifo(e.top+"/fifo", 0o600))
	e.place("/etc/cdi/a.json", `{"cdiVersion":"0.5.0","kind":"v.com/c","devices":[
 {"name":"x","containerEdits":{"deviceNodes":[
   {"path":"/fifo"}, {"path":"/dev/x","hostPath":"/bin/data"}, {"path":"/dev/y","hostPath":"/fifo","type":"c"},
   {"path":"/dev/none"}, {"path":"/dev/none","type":"c","major":1,"minor":3}, {"path":"/dev/none","type":"c"}],
  "mounts":[{"hostPath":"/bin","containerPath":"/b","type":"none"}, {"hostPath":"/lost","containerPath":"/b"}, {"hostPath":"tmpfs","containerPath":"/t","type":"tmpfs"}],
  "hooks":[{"hookName":"prestart","path":"/bin/hook"}, {"hookName":"prestart","path":"/bin/data"}, {"hookName":"prestart","path":"/bin/gone"}]}}]}`)
	for check, want := range map[bool][]string{
		false: nil,
		true: {
			`line 3, column 50: devices[0].containerEdits.deviceNodes[1].hostPath: found "/bin/data": is a regular file on the host; a device node must be a device or a FIFO`,
			`line 3, column 92: devices[0].containerEdits.deviceNodes[2].hostPath: found "/fifo": is a FIFO on the host, and the spec says type "c"`,
			`line 4, column 12: devices[0].containerEdits.deviceNodes[3].path: found "/dev/none": cannot be found on the host: no such file or directory`,
			`warning: line 4, column 34: devices[0].containerEdits.deviceNodes[4].path: found "/dev/none": cannot be found on the host: no such file or directory`,
			`line 4, column 87: devices[0].containerEdits.deviceNodes[5].path: found "/dev/none": cannot be found on the host: no such file or directory`,
			`warning: line 5, column 13: devices[0].containerEdits.mounts[0].options: has neither "bind" nor "rbind": runc then fails to make the bind mount`,
			`warning: line 5, column 69: devices[0].containerEdits.mounts[1].options: has neither "bind" nor "rbind": runc then fails to make the bind mount`,
			`line 5, column 81: devices[0].containerEdits.mounts[1].hostPath: found "/lost": cannot be found on the host: no such file or directory`,
			`line 6, column 86: devices[0].containerEdits.hooks[1].path: found "/bin/data": is a regular file of mode 0644 on the host; a hook must be an executable file`,
			`line 6, column 130: devices[0].containerEdits.hooks[2].path: found "/bin/gone": cannot be found on the host: no such file or directory`,
		},
	} {
		diags, err := cdiregistry.ValidateFile(e.host, "/etc/cdi/a.json", cdiregistry.ValidateOptions{CheckHost: check})
		e.must(err)
		var got []string
		for _, d := range diags {
			got = append(got, d.String())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("host checked: %v (-want +got):\n%s", check, diff)
		}
	}
	e.must(os.MkdirAll(e.top+"/sys/class/net/eth1", 0o755))
	e.place("/etc/cdi/b.json", `{"cdiVersion":"1.1.0","kind":"v.com/c","devices":[{"name":"x","containerEdits":{"netDevices":[
 {"hostInterfaceName":"eth1","name":"a"}, {"hostInterfaceName":"eth2","name":"b"}, {"hostInterfaceName":"../net/eth1","name":"c"}, {"hostInterfaceName":"interface-0123456","name":"d"},
 {"hostInterfaceName":"eth1x","name":"interface-0123456"}]}}]}`)
	diags, err := cdiregistry.ValidateFile(e.host, "/etc/cdi/b.json", cdiregistry.ValidateOptions{CheckHost: true})
	e.must(err)
	var got []string
	for _, d := range diags {
		got = append(got, d.String())
	}
	if diff := cmp.Diff([]string{
		`warning: line 2, column 64: devices[0].containerEdits.netDevices[1].hostInterfaceName: found "eth2": cannot be found among the host's network interfaces: no such file or directory`,
		`line 2, column 105: devices[0].containerEdits.netDevices[2].hostInterfaceName: found "../net/eth1": no interface has that name: 1 to 15 bytes without "/", ":" and white space`,
		`line 2, column 153: devices[0].containerEdits.netDevices[3].hostInterfaceName: found "interface-0123456": no interface has that name: 1 to 15 bytes without "/", ":" and white space`,
		`warning: line 3, column 23: devices[0].containerEdits.netDevices[4].hostInterfaceName: found "eth1x": cannot be found among the host's network interfaces: no such file or directory`,
		`line 3, column 38: devices[0].containerEdits.netDevices[4].name: found "interface-0123456": no interface has that name: 1 to 15 bytes without "/", ":" and white space`,
	}, got); diff != "" {
		t.Errorf("interfaces (-want +got):\n%s", diff)
	}
	e.must(os.Chmod(filepath.Join(e.top, "/etc/cdi/a.json"), 0o666))
	diags, err = cdiregistry.ValidateFile(e.host, "/etc/cdi/a.json", cdiregistry.ValidateOptions{})
	if err != nil || len(diags) != 1 || !strings.Contains(diags[0].String(), "chmod") {
		t.Errorf("a file others can write: %v, %v", diags, err)
	}
	for _, file := range []string{"/etc/cdi/none.json", "/etc/cdi", "/none/a.json"} {
		if diags, err := cdiregistry.ValidateFile(e.host, file, cdiregistry.ValidateOptions{}); err == nil || len(diags) > 0 {
			t.Errorf("%s: %v, %v", file, diags, err)
		}
	}
}

// TestValidateNumbers has a node that is on the host under another number than the
// spec gives it: what the spec says counts, and may be a mistake.
func TestValidateNumbers(t *testing.T) {
	e := newEnv(t, mode{})
	file := filepath.Join(e.top, "a.json")
	text := `{"cdiVersion":"0.5.0","kind":"v.com/c","devices":[{"name":"x","containerEdits":{"deviceNodes":[
 {"path":"/dev/null","type":"c","major":1,"minor":3}, {"path":"/dev/x","hostPath":"/dev/null","type":"c","major":7}, {"path":"/dev/null"}]}}]}`
	e.must(os.WriteFile(file, []byte(text), 0o644))
	diags, err := cdiregistry.ValidateFile(hostfs.Host(), file, cdiregistry.ValidateOptions{CheckHost: true, Trust: cdiregistry.TrustAnyone})
	e.must(err)
	if len(diags) != 1 || diags[0].String() != `warning: line 2, column 83: devices[0].containerEdits.deviceNodes[1].hostPath: found "/dev/null": is number 1:3 on the host, and the spec says another` {
		t.Errorf("%v", diags)
	}
}

// TestValidateTellsAll: one run tells what keeps a file from being believed, what is
// wrong in it, and what is not on the host, each place once.
func TestValidateTellsAll(t *testing.T) {
	e := newEnv(t, mode{fixture: true})
	e.place("/etc/cdi/a.json", `{"cdiVersion":"0.5.0","kind":"v.com/c","devices":[
 {"name":"x","containerEdits":{"env":["A"],"deviceNodes":[{"path":"/dev/none"}, {"path":"dev/x"}]}}]}`)
	e.must(os.Chmod(e.top+"/etc/cdi/a.json", 0o666))
	diags, err := cdiregistry.ValidateFile(e.host, "/etc/cdi/a.json", cdiregistry.ValidateOptions{CheckHost: true})
	e.must(err)
	var got []string
	for _, d := range diags {
		got = append(got, d.String())
	}
	if diff := cmp.Diff([]string{
		"found file \"/etc/cdi/a.json\" with mode 0666: a spec file must be writable by its owner alone; run `chmod go-w /etc/cdi/a.json`",
		`line 2, column 39: devices[0].containerEdits.env[0]: found "A": must be NAME=VALUE`,
		`line 2, column 67: devices[0].containerEdits.deviceNodes[0].path: found "/dev/none": cannot be found on the host: no such file or directory`,
		`line 2, column 89: devices[0].containerEdits.deviceNodes[1].path: found "dev/x": must be an absolute path`,
	}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
