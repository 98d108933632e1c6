// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/kubelet"
)

// config grants all kinds of devices. The kubelet decides which container has which.
const config = `kubelet: {required: true}
policy:
  rules:
    - name: telco
      for: {namespaces: [telco]}
      allow: {devices: ["/dev/vfio/*", "/dev/vfio/devices/*", "/dev/iommu", "/dev/vhost-vdpa-*", "/dev/infiniband/*"]}
`

// rig is containerd with jackfield-nri, and a kubelet that reports which devices the containers have.
type rig struct {
	*e2e.H
	t       *testing.T
	plugin  *e2e.Plugin
	kubelet *kubelet.Server
	pods    []*v1.PodResources
}

// newRig starts Jackfield's plugin with a configuration.
func newRig(t *testing.T, config string) *rig {
	t.Helper()
	Require(t)
	r := &rig{H: e2e.Shared(t, node.V24), t: t}
	var err error
	if r.kubelet, err = kubelet.StartUnder(""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.kubelet.Stop)
	r.plugin = r.StartPlugin(node.PluginOptions{Config: config})
	return r
}

// device is a device that the kubelet allocated to a container, and the device-info of its network.
type device struct{ id, info string }

// pci is a function.
func pci(address string) device { return device{address, pciInfo(address)} }

// vdpa is a vDPA device; address is that of its function, or empty.
func vdpa(name, driver, address string) device {
	id, function := name, ""
	if address != "" {
		id, function = address, `,"pci-address":"`+address+`"`
	}
	return device{id, fmt.Sprintf(`{"type":"vdpa","version":"1.1.0","vdpa":{"parent-device":%q,"driver":%q,"path":%q%s}}`, name, driver, vhostNode(name), function)}
}

// pod runs the sandbox of a pod. The kubelet reports that its container "app" has the devices, on the networks net1,
// net2, …
func (r *rig) pod(name string, devices ...device) *e2e.Pod {
	r.t.Helper()
	return r.podWith(node.PodOptions{Name: name, HostNetwork: true}, devices...)
}

// podWith is like pod, with options of the sandbox.
func (r *rig) podWith(o node.PodOptions, devices ...device) *e2e.Pod {
	r.t.Helper()
	app := kubelet.Container("app")
	for _, d := range devices {
		kubelet.Device(resource, d.id)(app)
	}
	o.Namespace = "telco"
	r.pods = append(r.pods, kubelet.Pod("telco", o.Name, app))
	r.kubelet.SetPods(r.pods...)
	pod := r.RunPod(o)
	for i, d := range devices {
		if err := writeDeviceInfo("telco", pod.ID, fmt.Sprintf("net%d", i+1), d.info); err != nil {
			r.t.Fatal(err)
		}
	}
	return pod
}

// requiringPod is like pod, but its annotation requests the devices, so the container must not start without them.
func (r *rig) requiringPod(name string, devices ...device) *e2e.Pod {
	r.t.Helper()
	return r.podWith(node.PodOptions{Name: name, HostNetwork: true,
		Annotations: map[string]string{"devices.jackfield.dev": "resource:" + resource}}, devices...)
}

// app are the options of a pod's container. It has IPC_LOCK, which applications with VFIO need.
func app(command ...string) node.ContainerOptions {
	return node.ContainerOptions{Name: "app", Mounts: systemMounts(), Command: command, Capabilities: &cri.Capability{AddCapabilities: []string{"IPC_LOCK"}}}
}

// run runs a pod whose container sleeps.
func (r *rig) run(name string, devices ...device) *e2e.Container {
	r.t.Helper()
	return r.pod(name, devices...).Run(app())
}

// probe uses a device in a container and returns the output.
func (r *rig) probe(c *e2e.Container, args ...string) string {
	r.t.Helper()
	stdout, stderr, _ := c.Exec(append([]string{"/share/bin/test", "probe"}, args...)...)
	return stdout + stderr
}

// check fails the test unless output has all texts.
func check(t *testing.T, output string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(output, text) {
			t.Errorf("%q is missing in: %s", text, output)
		}
	}
}

// denied fails the test unless the container's cgroup denies a node of the host, which the container creates itself.
func (r *rig) denied(c *e2e.Container, node string) {
	r.t.Helper()
	major, minor := number(r.t, node)
	out := c.Output("sh", "-c", fmt.Sprintf("mknod /tmp/node c %d %d && (: <>/tmp/node) 2>&1; rm /tmp/node", major, minor))
	check(r.t, out, "Operation not permitted")
}

// nodesIn returns the nodes of VFIO, vDPA and RDMA in the output of find.
func nodesIn(out string) string {
	return strings.Join(regexp.MustCompile(`(?m)^/dev/(vfio/.*|iommu|vhost.*|infiniband/.*)$`).FindAllString(out, -1), " ")
}
