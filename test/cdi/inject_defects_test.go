// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	rspec "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/engine"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/pkg/cdi"
)

// Each test here shows one defect of upstream's injection, and that Jackfield does not have it.
// The test fails when upstream fixes the defect.

const upstreamFixed = "upstream has fixed the defect: remove this test and its row in docs/contributing/conformance-cdi.md"

// device returns the text of a spec file with one device, d of v.com/c.
func device(edits string) string {
	return `{"cdiVersion":"1.1.0","kind":"v.com/c","devices":[{"name":"d","containerEdits":` + edits + `}]}`
}

// writeSpecDir writes spec files with the given texts.
func writeSpecDir(tb testing.TB, texts ...string) []string {
	tb.Helper()
	dir := tb.TempDir()
	for i, text := range texts {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.json", i)), []byte(text), 0o644); err != nil {
			tb.Fatal(err)
		}
	}
	return []string{dir}
}

// mknod creates a device node, or skips the test without CAP_MKNOD outside CI.
func mknod(t *testing.T, file string, major, minor uint32) {
	t.Helper()
	err := unix.Mknod(file, unix.S_IFCHR|0o600, int(unix.Mkdev(major, minor)))
	if errors.Is(err, unix.EPERM) {
		if ci, _ := strconv.ParseBool(os.Getenv("CI")); !ci {
			t.Skipf("mknod: %v; a device node wants CAP_MKNOD", err)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestInjectDoesNotChangeRegistry injects concurrently. The race detector checks that no injection writes to the spec that
// all of them share.
func TestInjectDoesNotChangeRegistry(t *testing.T) {
	dirs := writeSpecDir(t, device(`{"deviceNodes":[{"path":"/dev/jf","hostPath":"/dev/null"},{"path":"/dev/zero"}],"env":["A=b"],"hooks":[{"hookName":"poststop","path":"/bin/true","args":["a"]}]}`))
	e, err := engine.New(hostfs.Host(), engineConfig(), engine.Options{AllowAll: true, ForAdministrator: true, SpecDirs: dirs})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				spec := &rspec.Spec{}
				if err := inject(e, spec, "v.com/c=d"); err != nil {
					t.Error(err)
					return
				}
				// The caller may change the result.
				spec.Linux.Devices[0].Major++
				*spec.Linux.Devices[1].FileMode = 0
				spec.Hooks.Poststop[0].Args[0] = "scribble"
			}
		})
	}
	all.Wait()
	d, err := e.Registry().Snapshot().Device("v.com/c=d")
	if err != nil {
		t.Fatal(err)
	}
	if n := d.Edits.DeviceNodes[1]; n.HostPath != "" || n.Major != 0 || n.FileMode != nil || d.Edits.Hooks[0].Args[0] != "a" {
		t.Errorf("the registry's spec was changed: %+v, %+v", n, d.Edits.Hooks[0])
	}
}

// TestInjectReadsDeviceNodeEachTime replaces a node between two injections.
func TestInjectReadsDeviceNodeEachTime(t *testing.T) {
	node := filepath.Join(t.TempDir(), "node")
	dirs := writeSpecDir(t, device(`{"deviceNodes":[{"path":"/dev/jf","hostPath":"`+node+`"}]}`))
	e, cache := newEngine(t, dirs), newUpstreamCache(t, dirs)
	numbers := func() (ours, theirs string) {
		a, b := &rspec.Spec{}, &rspec.Spec{}
		if err := inject(e, a, "v.com/c=d"); err != nil {
			t.Fatal(err)
		}
		if _, err := cache.InjectDevices(b, "v.com/c=d"); err != nil {
			t.Fatal(err)
		}
		show := func(d rspec.LinuxDevice) string { return fmt.Sprintf("%d:%d %o", d.Major, d.Minor, *d.FileMode) }
		return show(a.Linux.Devices[0]), show(b.Linux.Devices[0])
	}
	mknod(t, node, 1, 3)
	if ours, theirs := numbers(); ours != "1:3 600" || theirs != ours {
		t.Fatalf("jackfield %s, upstream %s", ours, theirs)
	}
	// Reloading the driver replaces the node.
	if err := os.Remove(node); err != nil {
		t.Fatal(err)
	}
	mknod(t, node, 1, 5)
	if err := os.Chmod(node, 0o666); err != nil {
		t.Fatal(err)
	}
	if ours, theirs := numbers(); ours != "1:5 666" || theirs != ours {
		t.Errorf("jackfield has %s, upstream %s", ours, theirs)
	}
}

// Defect 7: upstream adds the hooks of a device twice if the request names it twice.
func TestInjectDeduplicatesDevices(t *testing.T) {
	dirs := writeSpecDir(t, device(`{"deviceNodes":[{"path":"/dev/null"}],"hooks":[{"hookName":"createRuntime","path":"/bin/true"}]}`))
	ours, theirs := &rspec.Spec{}, &rspec.Spec{}
	if err := inject(newEngine(t, dirs), ours, "v.com/c=d", "v.com/c=d"); err != nil {
		t.Fatal(err)
	}
	if _, err := newUpstreamCache(t, dirs).InjectDevices(theirs, "v.com/c=d", "v.com/c=d"); err != nil {
		t.Fatal(err)
	}
	if n, m := len(ours.Hooks.CreateRuntime), len(ours.Linux.Resources.Devices); n != 1 || m != 1 {
		t.Errorf("jackfield has %d hooks and %d rules", n, m)
	}
	if n, m := len(theirs.Hooks.CreateRuntime), len(theirs.Linux.Resources.Devices); n == 1 || m == 1 {
		t.Error(upstreamFixed)
	}
}

// Defect 9: upstream's failed injection leaves the spec partly edited.
func TestFailedInjectLeavesSpecUnchanged(t *testing.T) {
	dirs := writeSpecDir(t,
		device(`{"env":["A=b"],"deviceNodes":[{"path":"/dev/null"}]}`),
		`{"cdiVersion":"1.1.0","kind":"v.com/broken","devices":[{"name":"d","containerEdits":{"deviceNodes":[{"path":"/dev/no/such/node"}],"env":["B=c"]}}]}`)
	ours, theirs := &rspec.Spec{Version: "1.2.0"}, &rspec.Spec{Version: "1.2.0"}
	err := inject(newEngine(t, dirs), ours, "v.com/c=d", "v.com/broken=d")
	if !errdefs.IsNotFound(err) || !strings.Contains(err.Error(), "/dev/no/such/node") || !strings.Contains(err.Error(), "1.json: devices[0].containerEdits.deviceNodes[0]") {
		t.Errorf("jackfield: %v", err)
	}
	if diff := cmp.Diff(&rspec.Spec{Version: "1.2.0"}, ours); diff != "" {
		t.Errorf("jackfield leaves %s", diff)
	}
	if _, err := newUpstreamCache(t, dirs).InjectDevices(theirs, "v.com/c=d", "v.com/broken=d"); err == nil || theirs.Process == nil {
		t.Errorf("%v: "+upstreamFixed, err)
	}
}

// Defect 10: upstream accepts a network device with the name of one that the OCI spec has. No runtime can create both.
func TestInjectRejectsConflictingNetDevices(t *testing.T) {
	net := func(kind, host, name string) string {
		return fmt.Sprintf(`{"cdiVersion":"1.1.0","kind":"v.com/%s","devices":[{"name":"d","containerEdits":{"netDevices":[{"hostInterfaceName":%q,"name":%q}]}}]}`, kind, host, name)
	}
	dirs := writeSpecDir(t, net("a", "eth1", "net1"), net("b", "eth2", "net1"), net("c", "eth1", "net2"))
	own := &rspec.Spec{Linux: &rspec.Linux{NetDevices: map[string]rspec.LinuxNetDevice{"eth9": {Name: "net1"}}}}
	for _, tc := range []struct {
		spec    *rspec.Spec
		devices []string
		names   []string
	}{
		{&rspec.Spec{}, []string{"v.com/a=d", "v.com/b=d"}, []string{"eth2", "v.com/a=d", "v.com/b=d", "0.json", "1.json"}},
		{&rspec.Spec{}, []string{"v.com/a=d", "v.com/c=d"}, []string{"eth1", "v.com/a=d", "v.com/c=d", "0.json", "2.json"}},
		{own, []string{"v.com/a=d"}, []string{"net1", "eth9", "eth1", "v.com/a=d", "0.json"}},
	} {
		before := copySpec(t, tc.spec)
		_, err := newUpstreamCache(t, dirs).InjectDevices(copySpec(t, tc.spec), tc.devices...)
		if tc.spec == own && err != nil {
			t.Errorf("%v: "+upstreamFixed, err)
		} else if tc.spec != own && err == nil {
			t.Errorf("%v: upstream accepts them", tc.devices)
		}
		err = inject(newEngine(t, dirs), tc.spec, tc.devices...)
		if !errdefs.IsConflict(err) {
			t.Fatalf("%v: %v", tc.devices, err)
		}
		for _, n := range tc.names {
			if !strings.Contains(err.Error(), n) {
				t.Errorf("the error does not name %q: %v", n, err)
			}
		}
		if diff := cmp.Diff(before, tc.spec); diff != "" {
			t.Errorf("partly edited: %s", diff)
		}
	}
}

// Defect 14: upstream rejects a device node that is a symlink.
func TestInjectFollowsSymlinkToDeviceNode(t *testing.T) {
	link := filepath.Join(t.TempDir(), "by-id")
	if err := os.Symlink("/dev/null", link); err != nil {
		t.Fatal(err)
	}
	dirs := writeSpecDir(t, device(`{"deviceNodes":[{"path":"/dev/jf","hostPath":"`+link+`"}]}`))
	if _, err := newUpstreamCache(t, dirs).InjectDevices(&rspec.Spec{}, "v.com/c=d"); err == nil {
		t.Error(upstreamFixed)
	}
	spec := &rspec.Spec{}
	if err := inject(newEngine(t, dirs), spec, "v.com/c=d"); err != nil {
		t.Fatal(err)
	}
	if d := spec.Linux.Devices[0]; d.Path != "/dev/jf" || d.Type != "c" || d.Major != 1 || d.Minor != 3 {
		t.Errorf("the node is %+v", d)
	}
}

// The error names the file and its fault. Upstream's names only the device.
func TestInjectErrorNamesFileAndFault(t *testing.T) {
	dirs := writeSpecDir(t, device(`{"env":["A"]}`))
	_, theirs := newUpstreamCache(t, dirs).InjectDevices(&rspec.Spec{}, "v.com/c=d")
	if theirs == nil || strings.Contains(theirs.Error(), "0.json") {
		t.Errorf("%v: "+upstreamFixed, theirs)
	}
	err := inject(newEngine(t, dirs), &rspec.Spec{}, "v.com/c=d")
	var missing *cdi.NotFoundError
	if !errors.As(err, &missing) || !strings.Contains(err.Error(), "0.json") || !strings.Contains(err.Error(), `invalid value "A"`) {
		t.Errorf("jackfield: %v", err)
	}
}
