// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/host/sysfstest"
	"github.com/jackfield/jackfield/internal/report/telemetry"
)

const numbersConfig = `
audit: {file: /audit.log}
policy: {rules: [{name: r, for: {namespaces: [ns]}, allow: {cdi: ["vendor.com/net=*"], devices: ["/dev/vfio/*"]}}]}
`

// numbersHost is a host with one virtual function, whose number the kernel can give to another.
type numbersHost struct {
	*reloadHost
	tree *sysfstest.Tree
}

func newNumbersHost(t *testing.T, root string) *numbersHost {
	t.Helper()
	tree, err := sysfstest.New(root)
	testkit.Must(t, err)
	h := &numbersHost{tree: tree}
	if _, err := os.Lstat(filepath.Join(root, "sys/dev/char/245:0")); err != nil {
		h.tree, h.reloadHost = tree, &reloadHost{t: t}
		h.createFunction("0000:03:00.1", 11)
	}
	h.reloadHost = newReloadHostIn(t, root, numbersConfig, false)
	testkit.Must(t, os.WriteFile(filepath.Join(root, "etc/cdi/v.json"), []byte(`{"cdiVersion":"0.6.0","kind":"vendor.com/net","devices":[
 {"name":"vf","containerEdits":{"deviceNodes":[{"path":"/dev/vfio/11"}]}},{"name":"new","containerEdits":{"deviceNodes":[{"path":"/dev/vfio/12"}]}}]}`), 0o644))
	return h
}

// createFunction creates a virtual function in a group whose node has the number 245:0.
func (h *numbersHost) createFunction(address string, group int) {
	h.t.Helper()
	err := errors.Join(h.tree.AddPCI(address, "vfio-pci", group),
		h.tree.AddVFIO(group, sysfstest.Dev{Major: 245}, sysfstest.Dev{Major: 10, Minor: 196}))
	if errors.Is(err, sysfstest.ErrNoMknod) {
		h.t.Skipf("skipped: %v", err)
	}
	testkit.Must(h.t, err)
}

// create creates a container with a CDI device in a pod of its own.
func (h *numbersHost) createWith(pod, device string) error {
	p := &api.PodSandbox{Id: "sb-" + pod, Uid: "uid-" + pod, Namespace: "ns", Name: pod,
		Annotations: map[string]string{"devices.jackfield.dev": "vendor.com/net=" + device}}
	testkit.Must(h.t, h.p.RunPodSandbox(h.t.Context(), p))
	c := &api.Container{Id: "c-" + pod, PodSandboxId: p.Id, Name: "c"}
	_, _, err := h.p.CreateContainer(h.t.Context(), p, c)
	if err == nil {
		testkit.Must(h.t, h.p.StartContainer(h.t.Context(), p, c))
	}
	return err
}

// stop ends the container of a pod.
func (h *numbersHost) stop(pod string) {
	_, err := h.p.StopContainer(h.t.Context(), &api.PodSandbox{Id: "sb-" + pod},
		&api.Container{Id: "c-" + pod, PodSandboxId: "sb-" + pod, State: api.ContainerState_CONTAINER_STOPPED})
	testkit.Must(h.t, err)
}

// While a container runs, its number can come to lead to another function. It is reported everywhere, and the function
// is delivered to nobody until the container has ended.
func TestReusedDeviceNumberIsReportedAndItsFunctionRefused(t *testing.T) {
	root := t.TempDir()
	h := newNumbersHost(t, root)
	testkit.Must(t, h.createWith("old", "vf"))
	h.p.numbers.check()
	if lost := h.p.numbers.listLost(); len(lost.reused)+len(lost.removed) != 0 {
		t.Errorf("before: %+v", lost)
	}
	testkit.Must(t, errors.Join(h.tree.Remove("/dev/vfio/11"), h.tree.Remove("/sys/dev/char/245:0")))
	h.p.numbers.check()
	lost := h.p.endpoints.nodeStatus()
	if len(lost.ReusedNumbers) != 0 || len(lost.RemovedDevices) != 1 {
		t.Fatalf("without a device: %+v, %+v", lost.ReusedNumbers, lost.RemovedDevices)
	}
	const removed = "ns/old/c cannot open /dev/vfio/11 (245:0): PCI function 0000:03:00.1 was removed, or unbound from its driver"
	if got := lost.RemovedDevices[0].RemovedText(); got != removed {
		t.Errorf("the removed device is reported as %q", got)
	}
	h.p.numbers.check()
	if again := h.p.numbers.listLost().removed; len(again) != 1 || !again[0].Since.Equal(lost.RemovedDevices[0].Since) {
		t.Errorf("the second check found %+v", again)
	}
	h.createFunction("0000:03:00.2", 12)
	for range 2 {
		h.p.numbers.check()
	}
	reused := h.p.endpoints.nodeStatus().ReusedNumbers
	if left := h.p.numbers.listLost().removed; len(left) != 0 {
		t.Errorf("a number that leads to a device again: %+v", left)
	}
	if len(reused) != 1 || reused[0].Title() != "ns/old/c" || reused[0].Number != "245:0" || reused[0].Path != "/dev/vfio/11" ||
		reused[0].Granted != "PCI function 0000:03:00.1" || reused[0].Now != "PCI function 0000:03:00.2" {
		t.Errorf("status: %+v", reused)
	}
	families, err := telemetry.NewGatherer(h.p.counters, h.p.endpoints.takeSample).Gather()
	testkit.Must(t, err)
	for _, f := range families {
		if f.GetName() == "jackfield_device_numbers_reused" && f.GetMetric()[0].GetGauge().GetValue() != 1 {
			t.Errorf("metric: %v", f)
		}
	}
	if n := strings.Count(h.log.String(), "leads to another device"); n != 1 {
		t.Errorf("%d log lines: %s", n, h.log)
	}
	if !testkit.Until(func() bool {
		audit, _ := os.ReadFile(filepath.Join(root, "audit.log"))
		return strings.Count(string(audit), `"event":"reused"`) == 1 && strings.Contains(string(audit), "was PCI function 0000:03:00.1")
	}) {
		t.Error("the audit file has no line")
	}
	err = h.createWith("new", "new")
	if err == nil || !strings.Contains(err.Error(), `container "ns/old/c" can still open it`) {
		t.Errorf("the new function: %v", err)
	}
	h.stop("old")
	testkit.Must(t, h.createWith("newer", "new"))
	h.p.numbers.check()
	if reused := h.p.numbers.listLost().reused; len(reused) != 0 {
		t.Errorf("after its end: %+v", reused)
	}
}

// The next process reads the devices of the containers that live, and compares them like those of its own containers.
// A stopped container holds nothing.
func TestHeldDevicesSurviveRestartOfPlugin(t *testing.T) {
	root := t.TempDir()
	t.Run("first process", func(t *testing.T) {
		h := newNumbersHost(t, root)
		testkit.Must(t, h.createWith("old", "vf"))
		h.createFunction("0000:03:00.2", 12)
		testkit.Must(t, h.tree.Remove("/dev/vfio/11"))
	})
	for state, refused := range map[api.ContainerState]bool{api.ContainerState_CONTAINER_RUNNING: true, api.ContainerState_CONTAINER_STOPPED: false} {
		t.Run(state.String(), func(t *testing.T) {
			h := newNumbersHost(t, root)
			pods := []*api.PodSandbox{{Id: "sb-old", Namespace: "ns", Name: "old"}}
			_, err := h.p.Synchronize(t.Context(), pods, []*api.Container{{Id: "c-old", PodSandboxId: "sb-old", Name: "c", State: state}})
			testkit.Must(t, err)
			h.p.numbers.check()
			if n := len(h.p.numbers.listLost().reused); (n == 1) != refused {
				t.Errorf("%d numbers are reported", n)
			}
			if err := h.createWith("new", "new"); (err != nil) != refused || refused && !strings.Contains(err.Error(), "ns/old/c") {
				t.Error(err)
			}
			h.stop("new")
		})
	}
}
