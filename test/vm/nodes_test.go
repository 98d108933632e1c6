// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rspec "github.com/opencontainers/runtime-spec/specs-go"
)

// grant is config with other nodes.
func grant(patterns string) string {
	return "kubelet: {required: true}\npolicy: {rules: [{name: telco, for: {namespaces: [telco]}, allow: {devices: [" + patterns + "]}}]}\n"
}

// opened returns a command that opens a node.
func opened(node string) string { return "(: <>" + node + ") && echo opened " + node + "; " }

// A container opens the node of its function that is bound to uio_pci_generic. The cgroup denies the number of another
// function's node.
func TestContainerGetsUIO(t *testing.T) {
	Require(t)
	if err := run(t.Context(), "modprobe", "uio_pci_generic"); err != nil {
		t.Fatal(err)
	}
	bindAll(t, "uio_pci_generic", shared0, shared1)
	t.Cleanup(func() { bindAll(t, "", shared0, shared1) })
	node := func(address string) string {
		found, _ := filepath.Glob(pciDevices + address + "/uio/uio*")
		return "/dev/" + filepath.Base(strings.Join(found, " "))
	}
	out := newHost(t, grant(`"/dev/uio*"`)).succeed(box{name: "uio", devices: []device{pci(shared0)},
		command: "ls /dev; " + opened(node(shared0)) + intrudes(t, node(shared1)) + "true"}, "opened "+node(shared0), "not permitted")
	if strings.Contains(out, filepath.Base(node(shared1))+"\n") {
		t.Errorf("the container has the node of the other function: %s", out)
	}
}

// A container opens the nodes of vhost-net beside those of its function.
func TestContainerGetsVhostNet(t *testing.T) {
	Require(t)
	if err := run(t.Context(), "modprobe", "-a", "vhost_net", "tun"); err != nil {
		t.Fatal(err)
	}
	bindAll(t, "vfio-pci", vf0)
	info := `{"type":"pci","version":"1.1.0","pci":{"pci-address":"` + vf0 + `","vhost-net":"/dev/vhost-net"}}`
	newHost(t, grant(`"/dev/vfio/*", "/dev/vhost-net", "/dev/net/tun"`)).succeed(box{name: "vhost-net", devices: []device{{vf0, info}},
		command: opened("/dev/vhost-net") + opened("/dev/net/tun") + opened(groupNode(vf0))},
		"opened /dev/vhost-net", "opened /dev/net/tun", "opened "+groupNode(vf0))
}

// A device plugin has delivered two of a function's four nodes. Each node is in the container once.
func TestPresentNodesAreKept(t *testing.T) {
	Require(t)
	bindAll(t, "vfio-pci", vf0)
	h := newHost(t, config)
	present := []string{"/dev/vfio/vfio", groupNode(vf0)}
	b := box{name: "present", inject: true, devices: []device{pci(vf0)}, present: present, command: opens(vf0)}
	out := h.succeed(b)
	if n := strings.Count(out, "mapped\n"); n != 2 {
		t.Errorf("the function was used %d times, want 2: %s", n, out)
	}
	data, err := os.ReadFile(filepath.Join(h.dir, b.name, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var spec rspec.Spec
	if err := json.Unmarshal(data, &spec); err != nil {
		t.Fatal(err)
	}
	var nodes []string
	for _, d := range spec.Linux.Devices {
		nodes = append(nodes, d.Path)
	}
	if got, want := sorted(nodes...), sorted(append(present, "/dev/iommu", cdevNode(vf0))...); got != want {
		t.Errorf("the configuration has the nodes %s, want %s", got, want)
	}
	// The first rule denies all devices.
	if got, want := len(spec.Linux.Resources.Devices), 1+len(nodes); got != want {
		t.Errorf("the configuration has %d rules for devices, want %d: %+v", got, want, spec.Linux.Resources.Devices)
	}
}

// The permissions of a CDI device reach the program of the container's cgroup, with runc and crun.
func TestCgroupKeepsPermissions(t *testing.T) {
	Require(t)
	h := newHost(t, `policy: {rules: [{name: telco, for: {namespaces: [telco]}, allow: {cdi: ["example.com/dev=*"]}}]}`)
	const file = `{"cdiVersion":"0.6.0","kind":"example.com/dev","devices":[
 {"name":"iommu","containerEdits":{"deviceNodes":[{"path":"/dev/iommu","permissions":"r"}]}}]}`
	if err := errors.Join(os.Mkdir(filepath.Join(h.dir, "cdi"), 0o755), os.WriteFile(filepath.Join(h.dir, "cdi/dev.json"), []byte(file), 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, b := range []box{{name: "read-runc"}, {name: "read-crun", runtime: "/usr/bin/crun"}} {
		b.request, b.command = "example.com/dev=iommu", "(: </dev/iommu) && echo read; (: <>/dev/iommu) 2>&1"
		out, err := h.run(b)
		if err == nil {
			t.Errorf("%s: the container has opened the node for writing", b.name)
		}
		check(t, out, "read\n", "Operation not permitted")
	}
}

// jackfield validate accepts a CDI file with the machine's nodes, and a configuration that grants them. It reports the
// file, the field and the node if the file's number is that of another node.
func TestValidateChecksNodes(t *testing.T) {
	Require(t)
	bindAll(t, "vfio-pci", vf0, vf1)
	const file = "/etc/cdi/nodes.json"
	t.Cleanup(func() { _ = os.Remove(file) })
	// The entries of numbers are nodes whose numbers the file has for the nodes of paths.
	validate := func(paths, numbers []string) (string, error) {
		t.Helper()
		var devices []string
		for i, path := range paths {
			major, minor := number(t, numbers[i])
			devices = append(devices, fmt.Sprintf(` {"name":"d%d","containerEdits":{"deviceNodes":[{"path":%q,"type":"c","major":%d,"minor":%d}]}}`,
				i, path, major, minor))
		}
		text := `{"cdiVersion":"0.6.0","kind":"example.com/dev","devices":[` + "\n" + strings.Join(devices, ",\n") + "]}"
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), programs+"jackfield", "validate", newHost(t, config).config, file).CombinedOutput()
		return string(out), err
	}
	nodes := []string{groupNode(vf0), cdevNode(vf0), "/dev/iommu", vhostNode("sim0")}
	out, err := validate(nodes, nodes)
	if err != nil {
		t.Errorf("validate: %v", err)
	}
	check(t, out, "config.yaml: ok (1 rule)\n", file+": ok (4 devices)\n")
	for i, other := range map[int]string{0: groupNode(vf1), 1: cdevNode(vf1), 3: vhostNode("vpa")} {
		numbers := slices.Clone(nodes)
		numbers[i] = other
		out, err := validate(nodes, numbers)
		if err == nil {
			t.Errorf("validate accepts the number of %s for %s", other, nodes[i])
		}
		text := func(node string) string {
			major, minor := number(t, node)
			return fmt.Sprintf("c %d:%d", major, minor)
		}
		check(t, out, fmt.Sprintf("%s:%d:", file, i+2), fmt.Sprintf("devices[%d].containerEdits.deviceNodes[0].path: found %q: is %s on the host, but the file says %s",
			i, nodes[i], text(nodes[i]), text(other)))
	}
}

// bindVDPA binds a vDPA device to a driver of the vDPA bus.
func bindVDPA(name, driver string) error {
	const bus = "/sys/bus/vdpa/"
	return errors.Join(os.WriteFile(bus+"devices/"+name+"/driver/unbind", []byte(name), 0),
		os.WriteFile(bus+"devices/"+name+"/driver_override", []byte(driver), 0),
		os.WriteFile(bus+"drivers/"+driver+"/bind", []byte(name), 0))
}

// A vDPA device with the driver virtio has no node. A device with another driver than in device-info, and the device of
// another function, are refused.
func TestVDPADriverAndFunctionAreChecked(t *testing.T) {
	Require(t)
	if err := run(t.Context(), "modprobe", "virtio_vdpa"); err != nil {
		t.Fatal(err)
	}
	h := newHost(t, config)
	vhost := vdpa("sim0", "vhost", "")
	if err := bindVDPA("sim0", "virtio_vdpa"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bindVDPA("sim0", "vhost_vdpa"); err != nil {
			t.Error(err)
		}
	})
	virtio := device{"sim0", `{"type":"vdpa","version":"1.1.0","vdpa":{"parent-device":"sim0","driver":"virtio"}}`}
	if got := nodesIn(h.succeed(box{name: "virtio", devices: []device{virtio}, command: listNodes + "echo started"}, "started")); got != "" {
		t.Errorf("with the driver virtio, the container has %q", got)
	}
	h.refused(box{name: "driver", devices: []device{vhost}}, `vdpa.driver: found "vhost"`, `says "virtio"`)
	h.refused(box{name: "function", devices: []device{vdpa("vpa", "vhost", virtio1)}},
		`belongs to PCI function "`+virtio0+`"`, `the kubelet allocated "`+virtio1+`"`)
}

// A container opens a vDPA device that a process of the host serves (VDUSE).
func TestContainerGetsVDUSE(t *testing.T) {
	Require(t)
	if err := run(t.Context(), "modprobe", "vduse"); err != nil {
		t.Fatal(err)
	}
	server := exec.Command(programs+"test", "probe", "vduse", "user0")
	server.Stderr = os.Stderr
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The kernel removes the device of the bus while its server answers.
		err := run(context.Background(), "vdpa", "dev", "del", "user0")
		_ = server.Process.Kill()
		_ = server.Wait()
		if err := errors.Join(err, destroyVDUSE("user0")); err != nil {
			t.Error(err)
		}
	})
	if _, err := fmt.Fscan(out, new(string)); err != nil {
		t.Fatalf("the server has not started: %v", err)
	}
	if err := run(t.Context(), "vdpa", "dev", "add", "name", "user0", "mgmtdev", "vduse"); err != nil {
		t.Fatal(err)
	}
	node := vhostNode("user0")
	text := newHost(t, config).succeed(box{name: "vduse", devices: []device{vdpa("user0", "vhost", "")},
		command: listNodes + probeTool + "vdpa " + node + " 2>&1; " + intrudes(t, vhostNode("sim0")) + "true"}, "virtio device 1", "not permitted")
	if got := nodesIn(text); got != node {
		t.Errorf("the container has %q, want %q", got, node)
	}
}
