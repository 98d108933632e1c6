// SPDX-License-Identifier: Apache-2.0

package cdiedits_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/edit/cdiedits"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// newHost returns a host root with /fifo and the program /bin/hook.
func newHost(t *testing.T) hostfs.Root {
	t.Helper()
	top := t.TempDir()
	if err := os.Mkdir(filepath.Join(top, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(top, "bin/hook"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(top, "fifo"), 0o640); err != nil {
		t.Fatal(err)
	}
	host, err := hostfs.New(top)
	if err != nil {
		t.Fatal(err)
	}
	return host
}

var origin = edit.Origin{Request: `CDI device "v.com/c=d"`, File: "/etc/cdi/a.json", Field: "devices[0].containerEdits"}

func TestAddCompletesDeviceNodes(t *testing.T) {
	const late = "load the driver, or generate the file again if it is out of date"
	mode := func(m os.FileMode) *os.FileMode { return &m }
	for name, tc := range map[string]struct {
		node  specs.DeviceNode
		mode  os.FileMode
		fault string
	}{
		"from the host":    {specs.DeviceNode{Path: "/fifo"}, 0o640, ""},
		"stat type bits":   {specs.DeviceNode{Path: "/fifo", FileMode: mode(unix.S_IFIFO | 0o660)}, 0o660, ""},
		"Go's type bits":   {specs.DeviceNode{Path: "/fifo", FileMode: mode(os.ModeNamedPipe | 0o600)}, 0o600, ""},
		"not there yet":    {specs.DeviceNode{Path: "/dev/x", Type: "c", Major: 195, FileMode: mode(unix.S_IFCHR | 0o666)}, 0o666, ""},
		"other type":       {specs.DeviceNode{Path: "/fifo", Type: "c", Major: 1}, 0, `host path "/fifo" is type p on the host, but the file says c 1:0: generate the file again, or set hostPath to the host's node`},
		"other type bits":  {specs.DeviceNode{Path: "/fifo", FileMode: mode(unix.S_IFCHR)}, 0, `host path "/fifo" is a node of type p on the host, but the file's fileMode has the type bits of c: set fileMode to its permission bits`},
		"no node, no type": {specs.DeviceNode{Path: "/dev/x", Major: 226, Minor: 129}, 0, `host path "/dev/x" cannot be found on the host: no such file or directory, and the file sets no type: ` + late},
	} {
		b := edit.NewBuilder(edit.Existing{})
		err := (&cdiedits.Adder{Host: newHost(t), Builder: b}).Add(&specs.ContainerEdits{DeviceNodes: []*specs.DeviceNode{&tc.node}}, origin)
		if tc.fault == "" {
			if err != nil || *b.Edits().Devices[0].FileMode != tc.mode {
				t.Errorf("%s: %v, %+v", name, err, b.Edits().Devices)
			}
		} else if want := "/etc/cdi/a.json: devices[0].containerEdits.deviceNodes[0]: " + tc.fault; err == nil || err.Error() != want {
			t.Errorf("%s:\n%v, want\n%s", name, err, want)
		}
	}
}

func TestCheckHostReportsMissingFiles(t *testing.T) {
	at := func(field string, source edit.Source) edit.Origin {
		return edit.Origin{File: "/etc/cdi/a.json", Field: field, Source: source}
	}
	set := &edit.Set{
		Devices: []edit.Device{
			{Path: "/dev/x", HostPath: "/dev/x", Type: "c", Major: 195, Origin: at("deviceNodes[0]", edit.CDI)},
			{Path: "/dev/fifo", HostPath: "/fifo", Type: "p", Origin: at("deviceNodes[1]", edit.CDI)},
		},
		Mounts: []edit.Mount{
			{Destination: "/a", Source: "/bin", Origin: at("mounts[0]", edit.CDI)},
			{Destination: "/b", Source: "/lib/old.so", Options: []string{"bind"}, Origin: at("mounts[1]", edit.CDI)},
			{Destination: "/c", Source: "tmpfs", Type: "tmpfs", Origin: at("mounts[2]", edit.CDI)},
			{Destination: "/d", Source: "/run/staged/later", Origin: at("mounts[3]", edit.Attachment)},
		},
		Hooks: []edit.Hook{{Path: "/bin/hook", Origin: at("hooks[0]", edit.CDI)}, {Path: "/bin", Origin: at("hooks[1]", edit.HooksDir)}},
	}
	var got []string
	for _, d := range cdiedits.CheckHost(newHost(t), set) {
		got = append(got, d.Error())
	}
	want := []string{
		`/etc/cdi/a.json: warning: deviceNodes[0]: host path "/dev/x" cannot be found on the host: no such file or directory: load the driver, or generate the file again if it is out of date`,
		`/etc/cdi/a.json: mounts[1]: host path "/lib/old.so" cannot be found on the host: no such file or directory: generate the file again if it is out of date`,
		`/etc/cdi/a.json: hooks[1]: host path "/bin" is a directory of mode 0755 on the host; a hook must be an executable file`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
