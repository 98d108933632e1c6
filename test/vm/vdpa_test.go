// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"strings"
	"testing"
)

// Containers open vDPA devices with and without a PCI function. The device of another pod has no node, and the cgroup
// denies its number.
func TestContainersGetVDPA(t *testing.T) {
	Require(t)
	h := newHost(t, config)
	for name, own := range map[string]device{
		"with-function":    vdpa("vpa", "vhost", virtio0),
		"without-function": vdpa("sim0", "vhost", ""),
	} {
		node := vhostNode("vpa")
		if strings.Contains(own.info, "sim0") {
			node = vhostNode("sim0")
		}
		for _, inject := range []bool{false, true} {
			suffix := map[bool]string{false: "-hook", true: "-inject"}[inject]
			out := h.succeed(box{name: name + suffix, inject: inject, devices: []device{own},
				command: listNodes + probeTool + "vdpa " + node + " 2>&1; " + intrudes(t, vhostNode("vpb")) + "true"},
				"virtio device 1", "not permitted")
			if got := nodesIn(out); got != node {
				t.Errorf("%s%s: the container has %q, want %q", name, suffix, got, node)
			}
		}
	}
}

// The number of a node is looked up by the device's name: device-info has the number that the device had before.
func TestRenumberedVDPAIsFound(t *testing.T) {
	Require(t)
	h := newHost(t, config)
	before := vdpa("sim0", "vhost", "")
	if err := run(t.Context(), "vdpa", "dev", "del", "sim0"); err != nil {
		t.Fatal(err)
	}
	// Another device takes the number.
	for _, name := range []string{"other", "sim0"} {
		if err := run(t.Context(), "vdpa", "dev", "add", "name", name, "mgmtdev", "vdpasim_net", "mac", "52:54:00:00:05:01"); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := run(context.Background(), "vdpa", "dev", "del", "other"); err != nil {
			t.Error(err)
		}
	})
	node := vhostNode("sim0")
	if strings.Contains(before.info, `"`+node+`"`) {
		t.Fatalf("sim0 still has %s", node)
	}
	out := h.succeed(box{name: "renumbered", devices: []device{before}, command: listNodes + probeTool + "vdpa " + node + " 2>&1"}, "virtio device 1")
	if got := nodesIn(out); got != node {
		t.Errorf("the container has %q, want %q", got, node)
	}
}

// A rule with limits.memlock raises the limit of a container that pins memory, and of no other one.
func TestRuleRaisesMemlock(t *testing.T) {
	Require(t)
	bindAll(t, "vfio-pci", vf0)
	rule := func(limits string) string {
		return `kubelet: {required: true}
policy:
  rules:
    - name: telco
      for: {namespaces: [telco]}
      allow: {devices: ["/dev/vfio/*", "/dev/vfio/devices/*", "/dev/iommu", "/dev/vhost-vdpa-*"]}
` + limits
	}
	const show = "ulimit -H -l; ulimit -S -l"
	for name, own := range map[string]device{"vfio": pci(vf0), "vdpa": vdpa("sim0", "vhost", "")} {
		h := newHost(t, rule("      limits: {memlock: unlimited}\n"))
		h.succeed(box{name: name + "-unlimited", inject: true, memlock: 8 << 20, devices: []device{own}, command: show}, "unlimited\nunlimited\n")
		h = newHost(t, rule("      limits: {memlock: 64Mi}\n"))
		h.succeed(box{name: name + "-size", inject: true, memlock: 8 << 20, devices: []device{own}, command: show}, "65536\n65536\n")
		h = newHost(t, rule(""))
		h.succeed(box{name: name + "-none", inject: true, memlock: 8 << 20, devices: []device{own}, command: show}, "8192\n8192\n")
	}
	// The kernel's driver uses the function, and no program.
	if err := run(t.Context(), "modprobe", "igbvf"); err != nil {
		t.Fatal(err)
	}
	bindAll(t, "igbvf", vf3)
	h := newHost(t, rule("      limits: {memlock: unlimited}\n"))
	h.succeed(box{name: "kernel-driver", inject: true, memlock: 8 << 20, devices: []device{pci(vf3)}, command: show}, "8192\n8192\n")
}
