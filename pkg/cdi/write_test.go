// SPDX-License-Identifier: Apache-2.0

package cdi_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/jackfield/jackfield/pkg/cdi"
)

func validSpec() *specs.Spec {
	mode := os.FileMode(0o666)
	return &specs.Spec{Version: "0.5.0", Kind: "v.com/c", Devices: []specs.Device{{Name: "x", ContainerEdits: specs.ContainerEdits{
		Env: []string{"FROM=written"}, DeviceNodes: []*specs.DeviceNode{{Path: "/dev/null", FileMode: &mode}},
	}}}}
}

func TestWriteSpecReplacesFileWhateverTheUmask(t *testing.T) {
	old := unix.Umask(0o077) // the umask must have no effect
	defer unix.Umask(old)
	e := newEnv(t, mode{fixture: true})
	deep, err := cdi.NewCache(cdi.Options{Root: e.host.Dir(), SpecDirs: []string{"/run/cdi", "/var/deep/cdi"}})
	e.must(err)
	defer deep.Close()
	for name, want := range map[string]string{"a.json": "a.json", "b.yaml": "b.yaml", "c": "c.json", "d.yml": "d.yml.json"} {
		file, err := deep.WriteSpec(validSpec(), name)
		e.must(err)
		if file != "/var/deep/cdi/"+want {
			t.Errorf("%s is written to %s", name, file)
		}
		st, err := os.Stat(e.top + file)
		e.must(err)
		if st.Mode() != 0o644 {
			t.Errorf("%s has mode %v", file, st.Mode())
		}
		if diags, err := cdi.ValidateFile(file, cdi.ValidateOptions{Root: e.host.Dir(), CheckHost: false}); err != nil || len(diags) > 0 {
			t.Errorf("%s: %v, %v", file, diags, err)
		}
	}
	if st, err := os.Stat(e.top + "/var/deep"); err != nil || st.Mode().Perm() != 0o755 {
		t.Errorf("created directory: %v, %v", st, err)
	}
	left, err := os.ReadDir(e.top + "/var/deep/cdi")
	if err != nil || len(left) != 4 {
		t.Errorf("files: %v, %v", left, err)
	}

	bad := validSpec()
	bad.Devices[0].ContainerEdits.DeviceNodes[0].HostPath = "relative"
	var se *cdi.SpecError
	if _, err := e.r.WriteSpec(bad, "bad"); !errors.As(err, &se) || !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("invalid spec: %v", err)
	}
	for _, name := range []string{"../x", "a/b", strings.Repeat("n", 250), "nul\x00"} {
		if _, err := e.r.WriteSpec(validSpec(), name); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("name %q: %v", name, err)
		}
	}
	if left, _ := os.ReadDir(e.top + "/run/cdi"); len(left) != 0 {
		t.Errorf("left over: %v", left)
	}

	e.wantDevice("x", "")
	_, err = e.r.WriteSpec(validSpec(), "new")
	e.must(err)
	e.wantDevice("x", "written")
	e.must(e.r.RemoveSpec("new"))
	e.must(e.r.RemoveSpec("new"))
	e.must(os.RemoveAll(e.top + "/run/cdi"))
	e.must(e.r.RemoveSpec("new"))
	e.wantDevice("x", "")
}

func TestTransientSpecNameRefusesInvalidParts(t *testing.T) {
	for _, c := range [][3]string{{"", "v.com", "x"}, {"v.com", "c", ""}} {
		if _, err := cdi.GenerateTransientSpecName(c[0], c[1], c[2]); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("name of %q: %v", c, err)
		}
	}
}

func TestValidateFileReportsEachFault(t *testing.T) {
	e := newEnv(t, mode{fixture: true})
	e.must(os.MkdirAll(e.top+"/bin", 0o755))
	e.must(os.WriteFile(e.top+"/bin/hook", nil, 0o755))
	e.writeInPlace("/bin/data", "")
	e.must(unix.Mkfifo(e.top+"/fifo", 0o600))
	e.renameIntoPlace("/etc/cdi/a.json", `{"cdiVersion":"0.5.0","kind":"v.com/c","devices":[
 {"name":"x","containerEdits":{"deviceNodes":[
   {"path":"/fifo"}, {"path":"/dev/x","hostPath":"/bin/data"}, {"path":"/dev/y","hostPath":"/fifo","type":"c"},
   {"path":"/dev/none"}, {"path":"/dev/none","type":"c","major":1,"minor":3}, {"path":"/dev/none","type":"c"}],
  "mounts":[{"hostPath":"/bin","containerPath":"/b","type":"none"}, {"hostPath":"/lost","containerPath":"/b"}, {"hostPath":"tmpfs","containerPath":"/t","type":"tmpfs"}],
  "hooks":[{"hookName":"prestart","path":"/bin/hook"}, {"hookName":"prestart","path":"/bin/data"}, {"hookName":"prestart","path":"/bin/gone"}]}}]}`)
	for check, want := range map[bool][]string{
		false: nil,
		true: {
			`3:50: devices[0].containerEdits.deviceNodes[1].hostPath: found "/bin/data": is a regular file on the host; a device node must be a device or a FIFO`,
			`3:92: devices[0].containerEdits.deviceNodes[2].hostPath: found "/fifo": is type p on the host, but the file says type c: generate the file again, or set hostPath to the host's node`,
			`4:12: devices[0].containerEdits.deviceNodes[3].path: found "/dev/none": cannot be found on the host: no such file or directory, and the file sets neither type nor major: load the driver, or generate the file again if it is out of date`,
			`4:34: warning: devices[0].containerEdits.deviceNodes[4].path: found "/dev/none": cannot be found on the host: no such file or directory: load the driver, or generate the file again if it is out of date`,
			`4:87: devices[0].containerEdits.deviceNodes[5].path: found "/dev/none": cannot be found on the host: no such file or directory, and the file sets no major: load the driver, or generate the file again if it is out of date`,
			`5:13: warning: devices[0].containerEdits.mounts[0].options: has neither "bind" nor "rbind": runc then fails to make the bind mount`,
			`5:69: warning: devices[0].containerEdits.mounts[1].options: has neither "bind" nor "rbind": runc then fails to make the bind mount`,
			`5:81: devices[0].containerEdits.mounts[1].hostPath: found "/lost": cannot be found on the host: no such file or directory: generate the file again if it is out of date`,
			`6:86: devices[0].containerEdits.hooks[1].path: found "/bin/data": is a regular file of mode 0644 on the host; a hook must be an executable file`,
			`6:130: devices[0].containerEdits.hooks[2].path: found "/bin/gone": cannot be found on the host: no such file or directory: generate the file again if it is out of date`,
		},
	} {
		diags, err := cdi.ValidateFile("/etc/cdi/a.json", cdi.ValidateOptions{Root: e.host.Dir(), CheckHost: check})
		e.must(err)
		var got []string
		for _, d := range diags {
			got = append(got, d.Error())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("CheckHost %v (-want +got):\n%s", check, diff)
		}
	}
	e.must(os.MkdirAll(e.top+"/sys/class/net/eth1", 0o755))
	e.renameIntoPlace("/etc/cdi/b.json", `{"cdiVersion":"1.1.0","kind":"v.com/c","devices":[{"name":"x","containerEdits":{"netDevices":[
 {"hostInterfaceName":"eth1","name":"a"}, {"hostInterfaceName":"eth2","name":"b"}, {"hostInterfaceName":"../net/eth1","name":"c"}, {"hostInterfaceName":"interface-0123456","name":"d"},
 {"hostInterfaceName":"eth1x","name":"interface-0123456"}]}}]}`)
	diags, err := cdi.ValidateFile("/etc/cdi/b.json", cdi.ValidateOptions{Root: e.host.Dir(), CheckHost: true})
	e.must(err)
	var got []string
	for _, d := range diags {
		got = append(got, d.Error())
	}
	if diff := cmp.Diff([]string{
		`2:64: warning: devices[0].containerEdits.netDevices[1].hostInterfaceName: found "eth2": cannot be found among the host's network interfaces: no such file or directory`,
		`2:105: devices[0].containerEdits.netDevices[2].hostInterfaceName: found "../net/eth1": no interface has that name: 1 to 15 bytes without "/", ":" and white space`,
		`2:153: devices[0].containerEdits.netDevices[3].hostInterfaceName: found "interface-0123456": no interface has that name: 1 to 15 bytes without "/", ":" and white space`,
		`3:23: warning: devices[0].containerEdits.netDevices[4].hostInterfaceName: found "eth1x": cannot be found among the host's network interfaces: no such file or directory`,
		`3:38: devices[0].containerEdits.netDevices[4].name: found "interface-0123456": no interface has that name: 1 to 15 bytes without "/", ":" and white space`,
	}, got); diff != "" {
		t.Errorf("interfaces (-want +got):\n%s", diff)
	}
	e.must(os.Chmod(filepath.Join(e.top, "/etc/cdi/a.json"), 0o666))
	diags, err = cdi.ValidateFile("/etc/cdi/a.json", cdi.ValidateOptions{Root: e.host.Dir()})
	if err != nil || len(diags) != 1 || !strings.Contains(diags[0].Error(), "chmod") {
		t.Errorf("file that others can write: %v, %v", diags, err)
	}
	for _, file := range []string{"/etc/cdi/none.json", "/etc/cdi", "/none/a.json"} {
		if diags, err := cdi.ValidateFile(file, cdi.ValidateOptions{Root: e.host.Dir()}); err == nil || len(diags) > 0 {
			t.Errorf("%s: %v, %v", file, diags, err)
		}
	}
}

// TestNodeThatContradictsHostIsError checks a device node whose type or numbers differ from the host's node: the container
// would get another device under the name.
func TestNodeThatContradictsHostIsError(t *testing.T) {
	e := newEnv(t, mode{})
	file := filepath.Join(e.top, "a.json")
	text := `{"cdiVersion":"0.5.0","kind":"v.com/c","devices":[{"name":"x","containerEdits":{"deviceNodes":[
 {"path":"/dev/null","type":"c","major":1,"minor":3,"fileMode":8630}, {"path":"/dev/null"}, {"path":"/dev/null","type":"u"},
 {"path":"/dev/x","hostPath":"/dev/null","type":"c","major":7},
 {"path":"/dev/x","hostPath":"/dev/null","major":1,"minor":5},
 {"path":"/dev/x","hostPath":"/dev/null","type":"b","major":1,"minor":3},
 {"path":"/dev/x","hostPath":"/dev/null","fileMode":25008},
 {"path":"/dev/x","hostPath":"/bin","type":"c","major":1,"minor":3}]}}]}`
	e.must(os.WriteFile(file, []byte(text), 0o644))
	diags, err := cdi.ValidateFile(file, cdi.ValidateOptions{CheckHost: true, TrustAnyone: true})
	e.must(err)
	const again = ": generate the file again, or set hostPath to the host's node"
	place := func(line, column, node int) string {
		return fmt.Sprintf(`%d:%d: devices[0].containerEdits.deviceNodes[%d].hostPath: found "/dev/null": is `, line, column, node)
	}
	want := []string{
		place(3, 30, 3) + "c 1:3 on the host, but the file says c 7:0" + again,
		place(4, 30, 4) + "c 1:3 on the host, but the file says 1:5" + again,
		place(5, 30, 5) + "c 1:3 on the host, but the file says b 1:3" + again,
		place(6, 30, 6) + "a node of type c on the host, but the file's fileMode has the type bits of b: set fileMode to its permission bits",
	}
	var got []string
	for _, d := range diags {
		if !d.Warning {
			got = append(got, d.Error())
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if last := diags[len(diags)-1]; !last.Warning || !strings.Contains(last.Error(), "is a directory on the host") {
		t.Errorf("a full node whose host path is a directory: %v", last)
	}
}

// TestValidateFileReportsEveryFault checks that one run reports why a file is not trusted, its faults, and its paths
// that the host lacks. Each place is reported once.
func TestValidateFileReportsEveryFault(t *testing.T) {
	e := newEnv(t, mode{fixture: true})
	e.renameIntoPlace("/etc/cdi/a.json", `{"cdiVersion":"0.5.0","kind":"v.com/c","devices":[
 {"name":"x","containerEdits":{"env":["A"],"deviceNodes":[{"path":"/dev/none"}, {"path":"dev/x"}]}}]}`)
	e.must(os.Chmod(e.top+"/etc/cdi/a.json", 0o666))
	diags, err := cdi.ValidateFile("/etc/cdi/a.json", cdi.ValidateOptions{Root: e.host.Dir(), CheckHost: true})
	e.must(err)
	var got []string
	for _, d := range diags {
		got = append(got, d.Error())
	}
	if diff := cmp.Diff([]string{
		"found file \"/etc/cdi/a.json\", mode 0666: it must be writable by its owner alone: run `chmod go-w /etc/cdi/a.json`",
		`2:39: devices[0].containerEdits.env[0]: invalid value "A": must be NAME=VALUE`,
		`2:67: devices[0].containerEdits.deviceNodes[0].path: found "/dev/none": cannot be found on the host: no such file or directory, and the file sets neither type nor major: load the driver, or generate the file again if it is out of date`,
		`2:89: devices[0].containerEdits.deviceNodes[1].path: invalid value "dev/x": must be an absolute path`,
	}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
