// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/nri/pkg/api"
	rspec "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jackfield/jackfield/test/compatibility"
	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
	nritest "github.com/jackfield/jackfield/test/nri"
)

// The test injects CDI edits for which older versions of NRI have no field, and edits for which no version
// has one.
func TestEditsNewerThanNRI(t *testing.T) { e2e.EachWithNRI011(t, injectNewerEdits) }

func injectNewerEdits(t *testing.T, h *e2e.H) {
	p := h.StartPlugin(node.PluginOptions{Config: nodeConfig})
	for _, d := range []string{"/dev/net/tun", "/dev/fuse"} {
		if _, err := os.Stat(d); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatalf("no device to try permissions with: %v", err)
			}
			t.Skipf("skipped: no device to try permissions with: %v", err)
		}
	}
	h.WriteFile("/etc/cdi/newer.json", `{"cdiVersion": "1.1.0", "kind": "vendor.com/net", "devices": [
  {"name": "perms", "containerEdits": {"deviceNodes": [
    {"path": "/dev/ro", "hostPath": "/dev/fuse", "permissions": "r"}, {"path": "/dev/rw", "hostPath": "/dev/net/tun"}]}},
  {"name": "netdev", "containerEdits": {"netDevices": [{"hostInterfaceName": "jfnd0", "name": "fast0"}]}},
  {"name": "rdt", "containerEdits": {"intelRdt": {"closID": "gold", "schemata": ["L3:0=f"]}}},
  {"name": "groups", "containerEdits": {"additionalGids": [4711]}},
  {"name": "fifo", "containerEdits": {"deviceNodes": [{"path": "/dev/ff", "type": "p"}]}},
  {"name": "odd", "containerEdits": {"deviceNodes": [
    {"path": "/dev/unbuffered", "hostPath": "/dev/zero", "type": "u"}, {"path": "/dev/null-ro", "hostPath": "/dev/null", "permissions": "r"}],
    "mounts": [{"hostPath": "/etc/cdi", "containerPath": "/opt/cdi"}]}}]}`)
	pod := func(t *testing.T, device string) *e2e.Pod {
		return h.RunPod(node.PodOptions{Name: device, Namespace: "dpdk-1", Annotations: map[string]string{"devices.jackfield.dev": "vendor.com/net=" + device}})
	}
	t.Run("permissions", func(t *testing.T) {
		ctr := pod(t, "perms").Run(node.ContainerOptions{})
		ctr.Output("sh", "-c", ": < /dev/ro && : > /dev/rw")
		if out, errs, code := ctr.Exec("sh", "-c", ": > /dev/ro"); code == 0 || !strings.Contains(errs, "not permitted") {
			t.Errorf("a read-only device was written: status %d, %q %q; the rules are %+v", code, out, errs, ctr.OCISpec().Linux.Resources.Devices)
		}
	})
	// runc refuses these edits as CDI has them: a device rule of type u, and a bind mount without the option.
	t.Run("edits that runc refuses", func(t *testing.T) {
		ctr := pod(t, "odd").Run(node.ContainerOptions{})
		ctr.Output("sh", "-c", "dd if=/dev/unbuffered of=/dev/null bs=4 count=1 && echo > /dev/null && test -e /opt/cdi/newer.json")
		if err := pod(t, "fifo").CreateFails(node.ContainerOptions{}); !strings.Contains(err.Error(), `FIFO "/dev/ff"`) || !strings.Contains(err.Error(), "under mounts") {
			t.Errorf("a FIFO: error %v", err)
		}
	})
	t.Run("netDevices", func(t *testing.T) {
		if h.Kit().NewRunc == "" {
			if os.Getenv("CI") == "true" {
				t.Fatal("no C compiler to build runc with, and CI promises that there is one")
			}
			t.Skip("skipped: Debian's runc does not know network devices, and there is no C compiler to build a newer one with")
		}
		if out, err := exec.Command("ip", "link", "add", "jfnd0", "type", "veth", "peer", "name", "jfnd1").CombinedOutput(); err != nil {
			t.Fatalf("create the network device: %v: %s", err, out)
		}
		t.Cleanup(func() { _ = exec.Command("ip", "link", "del", "jfnd1").Run() })
		ctr := pod(t, "netdev").Run(node.ContainerOptions{})
		if !compatibility.NetDevices().Has(h.Generation()) {
			netDeviceIsIgnored(t, h, ctr, p)
			return
		}
		if got := strings.Fields(ctr.Output("ls", "/sys/class/net")); !slices.Contains(got, "fast0") {
			t.Errorf("the container's network devices are %q", got)
		}
		if _, err := os.Stat("/sys/class/net/jfnd0"); err == nil {
			t.Error("the host still has the device")
		}
	})
	t.Run("intelRdt", func(t *testing.T) {
		// The machine may lack resctrl. containerd runs the OCI runtime at the start, which does not follow here, and CRI-O
		// at the creation.
		if h.Generation().IsCRIO() {
			if _, err := os.Stat("/sys/fs/resctrl/info"); err != nil {
				if err := pod(t, "rdt").CreateFails(node.ContainerOptions{}); !regexp.MustCompile(`(?i)rdt|resctrl`).MatchString(err.Error()) {
					t.Errorf("the OCI runtime did not get the configuration: %v", err)
				}
				return
			}
		}
		spec := pod(t, "rdt").Create(node.ContainerOptions{}).OCISpec()
		if rdt := spec.Linux.IntelRdt; rdt == nil || rdt.ClosID != "gold" || !slices.Equal(rdt.Schemata, []string{"L3:0=f"}) {
			t.Errorf("the specification has %+v", rdt)
		}
	})
	t.Run("additionalGids", func(t *testing.T) {
		err := pod(t, "groups").CreateFails(node.ContainerOptions{})
		for _, want := range []string{"additional group 4711", "generate the file without additionalGids"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("the error does not say %q: %v", want, err)
			}
		}
	})
	t.Run("user of the container", func(t *testing.T) {
		spec := pod(t, "perms").Create(node.ContainerOptions{User: 1000, Group: 1001}).OCISpec()
		at := slices.IndexFunc(spec.Linux.Devices, func(d rspec.LinuxDevice) bool { return d.Path == "/dev/ro" })
		if at < 0 || spec.Linux.Devices[at].UID == nil || *spec.Linux.Devices[at].UID != 1000 || *spec.Linux.Devices[at].GID != 1001 {
			t.Errorf("the specification has %+v", spec.Linux.Devices)
		}
	})
}

// netDeviceIsIgnored checks that an OCI runtime ignores a network device without an error, and that the plugin and doctor
// report it.
func netDeviceIsIgnored(t *testing.T, h *e2e.H, ctr *e2e.Container, p *e2e.Plugin) {
	t.Helper()
	if got := strings.Fields(ctr.Output("ls", "/sys/class/net")); slices.Contains(got, "fast0") {
		t.Errorf("the OCI runtime knows network devices, and the table of features says that it does not: %q", got)
	}
	p.WaitLog(0, "an OCI runtime that does not know netDevices")
	found, _ := runDoctor(t, h, "--config", p.ConfigFile)
	expectFinding(t, found, "netDevices", "warning", "does not know netDevices")
}

// eventRecorder is a plugin that records the events that it receives.
type eventRecorder struct {
	nritest.Noop
	mu       sync.Mutex
	recorded []string
}

func (e *eventRecorder) record(event string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.recorded = append(e.recorded, event)
}

func (e *eventRecorder) Configure(context.Context, string, string, string) (api.EventMask, error) {
	var mask api.EventMask
	mask.Set(api.Event_STOP_POD_SANDBOX, api.Event_REMOVE_POD_SANDBOX, api.Event_REMOVE_CONTAINER)
	return mask, nil
}

func (e *eventRecorder) StopPodSandbox(context.Context, *api.PodSandbox) error {
	e.record("StopPodSandbox")
	return nil
}

func (e *eventRecorder) RemovePodSandbox(context.Context, *api.PodSandbox) error {
	e.record("RemovePodSandbox")
	return nil
}

func (e *eventRecorder) RemoveContainer(context.Context, *api.PodSandbox, *api.Container) error {
	e.record("RemoveContainer")
	return nil
}

// For a pod that is older than its own process, containerd reports the removal of containers but not of the
// pod. CRI-O reports both. docs/reference/compatibility.md documents this.
func TestRemovalOfOlderPodIsNotReported(t *testing.T) {
	e2e.EachFresh(t, node.Options{}, func(t *testing.T, h *e2e.H) {
		old := h.RunPod(node.PodOptions{Name: "old"})
		old.Run(node.ContainerOptions{})
		h.RestartRuntime()
		e := &eventRecorder{}
		h.Connect("10", "hears", e)
		young := h.RunPod(node.PodOptions{Name: "young"})
		young.Run(node.ContainerOptions{})
		old.Remove()
		recorded := func() []string {
			e.mu.Lock()
			defer e.mu.Unlock()
			return slices.Clone(e.recorded)
		}
		all := []string{"StopPodSandbox", "RemoveContainer", "RemovePodSandbox"}
		ofOlder := []string{"RemoveContainer"}
		if h.Generation().IsCRIO() {
			ofOlder = all
		}
		if got := recorded(); !slices.Equal(got, ofOlder) {
			t.Errorf("events of the older pod: %q", got)
		}
		young.Remove()
		if got := recorded(); !slices.Equal(got, slices.Concat(ofOlder, all)) {
			t.Errorf("events of both pods: %q", got)
		}
	})
}
