// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
)

// number returns the numbers of a device node.
func number(t *testing.T, node string) (major, minor uint32) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(node, &st); err != nil {
		t.Fatalf("%s: %v", node, err)
	}
	return unix.Major(st.Rdev), unix.Minor(st.Rdev)
}

// bindAll binds functions to a driver.
func bindAll(t *testing.T, name string, addresses ...string) {
	t.Helper()
	for _, address := range addresses {
		if err := bind(address, name); err != nil {
			t.Fatal(err)
		}
	}
}

func sorted(nodes ...string) string {
	sort.Strings(nodes)
	return strings.Join(nodes, " ")
}

const (
	listNodes = "find /dev -type c | sort; "
	probeTool = programs + "test probe "
)

// opens returns commands that use a function through both interfaces.
func opens(address string) string {
	return probeTool + "group " + groupNode(address) + " " + address + " 2>&1; " + probeTool + "cdev " + cdevNode(address) + " 2>&1; "
}

// intrudes returns a command that opens a node of the host, which the container creates itself.
func intrudes(t *testing.T, node string) string {
	major, minor := number(t, node)
	return fmt.Sprintf("rm -f /dev/other; mknod /dev/other c %d %d && (: <>/dev/other) 2>&1; ", major, minor)
}

// Under containerd and its default profile of AppArmor, a container opens its VF through the IOMMU group and through
// iommufd, and maps memory for it. The function of another pod has no node, and the container's cgroup denies its number.
// A restarted plugin changes nothing. A container with another user than root and without any capability opens its VF, too.
func TestPodsUseTheirVFs(t *testing.T) {
	Require(t)
	bindAll(t, "vfio-pci", vf0, vf1)
	r := newRig(t, config)
	a, podB := r.run("a", pci(vf0)), r.pod("b", pci(vf1))
	b := podB.Run(app())
	for c, own := range map[*e2e.Container][2]string{a: {vf0, vf1}, b: {vf1, vf0}} {
		got := c.Output("sh", "-c", listNodes)
		if got, want := nodesIn(got), sorted("/dev/vfio/vfio", "/dev/iommu", groupNode(own[0]), cdevNode(own[0])); got != want {
			t.Errorf("the container has %q, want %q", got, want)
		}
		check(t, r.probe(c, "group", groupNode(own[0]), own[0]), "API version 0, group status 0x1", "configuration space 8680ca10", "mapped")
		check(t, r.probe(c, "cdev", cdevNode(own[0])), "configuration space 8680ca10", "mapped")
		check(t, r.probe(c, "group", groupNode(own[0]), own[1]), "no such device")
		r.denied(c, groupNode(own[1]))
		r.denied(c, cdevNode(own[1]))
		check(t, c.Output("cat", "/proc/self/attr/current"), "cri-containerd.apparmor.d (enforce)")
		check(t, c.Output("env"), "JACKFIELD_NET1_PCI="+own[0], "JACKFIELD_NET1_EAL=-a "+own[0])
	}
	if err := r.plugin.Stop(node.Patience); err != nil {
		t.Fatal(err)
	}
	r.plugin.Restart()
	check(t, r.probe(a, "cdev", cdevNode(vf0)), "mapped")
	r.denied(a, cdevNode(vf1))
	b.Remove()
	bare := podB.Run(node.ContainerOptions{Name: "app", Mounts: systemMounts(), User: user, Group: user, Attempt: 1,
		Capabilities: &cri.Capability{DropCapabilities: []string{"ALL"}}})
	check(t, r.probe(bare, "group", groupNode(vf1), vf1), "configuration space 8680ca10", "mapped")
	check(t, r.probe(bare, "cdev", cdevNode(vf1)), "configuration space 8680ca10", "mapped")
	status := bare.Output("cat", "/proc/self/status")
	check(t, status, fmt.Sprintf("Uid:\t%d\t", user))
	for _, set := range []string{"CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		check(t, status, set+":\t0000000000000000\n")
	}
}

// The hook and jackfield inject deliver the same nodes with runc and crun.
func TestRuntimesGetVF(t *testing.T) {
	Require(t)
	bindAll(t, "vfio-pci", vf0, vf1)
	for _, runtime := range []string{programs + "runc", "/usr/bin/crun"} {
		for _, inject := range []bool{false, true} {
			name := strings.ReplaceAll(fmt.Sprintf("%s-inject-%t", runtime[strings.LastIndex(runtime, "/")+1:], inject), "/", "")
			t.Run(name, func(t *testing.T) {
				h := newHost(t, config)
				out := h.succeed(box{name: name, runtime: runtime, inject: inject, devices: []device{pci(vf0)},
					command: listNodes + opens(vf0) + intrudes(t, groupNode(vf1)) + intrudes(t, cdevNode(vf1)) + "env"},
					"API version 0, group status 0x1")
				if inject { // a hook cannot set variables
					check(t, out, "JACKFIELD_NET1_EAL=-a "+vf0)
				}
				if n := strings.Count(out, "configuration space 8680ca10\nmapped\n"); n != 2 {
					t.Errorf("the function was used %d times, want 2: %s", n, out)
				}
				if n := strings.Count(out, "not permitted"); n != 2 {
					t.Errorf("%d of 2 nodes of the other VF were denied: %s", n, out)
				}
				if got, want := nodesIn(out), sorted("/dev/vfio/vfio", "/dev/iommu", groupNode(vf0), cdevNode(vf0)); got != want {
					t.Errorf("the container has %q, want %q", got, want)
				}
			})
		}
	}
}

// A rule that grants only the nodes of groups delivers these, although the kernel has iommufd, and the reverse.
func TestRuleSelectsVFIOInterface(t *testing.T) {
	Require(t)
	bindAll(t, "vfio-pci", vf0)
	for name, tc := range map[string]struct{ patterns, nodes, use string }{
		"group":   {`"/dev/vfio/*"`, sorted("/dev/vfio/vfio", groupNode(vf0)), "group " + groupNode(vf0) + " " + vf0},
		"iommufd": {`"/dev/vfio/devices/*", "/dev/iommu"`, sorted("/dev/iommu", cdevNode(vf0)), "cdev " + cdevNode(vf0)},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, grant(tc.patterns))
			out := h.succeed(box{name: "only-" + name, devices: []device{pci(vf0)}, command: listNodes + probeTool + tc.use + " 2>&1"}, "mapped")
			if got := nodesIn(out); got != tc.nodes {
				t.Errorf("the container has %q, want %q", got, tc.nodes)
			}
		})
	}
}

// The modules of VFIO in Debian's kernel create no device nodes for iommufd. A container gets the nodes of its group.
func TestDebianVFIOHasOnlyGroups(t *testing.T) {
	Require(t)
	const built = "vfio_pci vfio_pci_core vfio_iommu_type1 vfio iommufd"
	for _, name := range strings.Fields(built) {
		if err := run(t.Context(), "rmmod", name); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, name := range strings.Fields(strings.TrimSuffix(built, " iommufd")) {
			if err := run(context.Background(), "rmmod", name); err != nil {
				t.Error(err)
			}
		}
		if err := run(context.Background(), "modprobe", "-a", "vfio-pci", "vfio_iommu_type1"); err != nil {
			t.Error(err)
		}
	})
	for _, name := range strings.Fields(debianVFIO) {
		if err := run(t.Context(), "insmod", debianVFIODir+filepath.Base(name)+".ko"); err != nil {
			t.Fatal(err)
		}
	}
	bindAll(t, "vfio-pci", vf0, vf1)
	if _, err := os.Stat(cdevNode(vf0)); err == nil {
		t.Skipf("Debian's kernel has %s: VFIO_DEVICE_CDEV is set", cdevNode(vf0))
	}
	h := newHost(t, config)
	for _, inject := range []bool{false, true} {
		out := h.succeed(box{name: fmt.Sprintf("group-inject-%t", inject), inject: inject, devices: []device{pci(vf0)},
			command: listNodes + probeTool + "group " + groupNode(vf0) + " " + vf0 + " 2>&1; " + intrudes(t, groupNode(vf1)) + "true"},
			"mapped", "not permitted")
		if got, want := nodesIn(out), sorted("/dev/vfio/vfio", groupNode(vf0)); got != want {
			t.Errorf("inject %t: the container has %q, want %q", inject, got, want)
		}
	}
}

// Two functions behind a bridge for conventional PCI share an IOMMU group. A container gets one of them only if it has
// both, and none is bound to a driver of the kernel.
func TestSharedIOMMUGroup(t *testing.T) {
	Require(t)
	if err := run(t.Context(), "modprobe", "e1000"); err != nil {
		t.Fatal(err)
	}
	bindAll(t, "vfio-pci", shared0, shared1)
	h := newHost(t, config)
	h.refused(box{name: "one", devices: []device{pci(shared0)}},
		"IOMMU group "+group(shared0)+" also has function "+shared1, "which is not allocated to this container")
	use := probeTool + "group " + groupNode(shared0) + " "
	out := h.succeed(box{name: "both", devices: []device{pci(shared0), pci(shared1)}, command: use + shared0 + "; " + use + shared1})
	if n := strings.Count(out, "configuration space 86800e10\nmapped\n"); n != 2 {
		t.Errorf("%d of 2 functions were used: %s", n, out)
	}
	bindAll(t, "e1000", shared1)
	h.refused(box{name: "kernel", devices: []device{pci(shared0), pci(shared1)}},
		"no program can open IOMMU group "+group(shared0), `has driver "e1000"`)
}

// The container's devices follow the driver of its VF. A function without a driver is refused, and one with a driver of
// the kernel has no node and no arguments for EAL. jackfield explain agrees each time.
func TestDriverOfVFChanges(t *testing.T) {
	Require(t)
	if err := run(t.Context(), "modprobe", "igbvf"); err != nil {
		t.Fatal(err)
	}
	h := newHost(t, config)
	for i, driver := range []string{"vfio-pci", "igbvf", "", "vfio-pci"} {
		bindAll(t, driver, vf3)
		b := box{name: fmt.Sprintf("driver-%d", i), inject: true, devices: []device{pci(vf3)}, command: listNodes + "env"}
		switch driver {
		case "":
			h.refused(b, "bound to no driver")
			check(t, h.explain(b.name), "would be refused", "bound to no driver")
		case "igbvf":
			out := h.succeed(b, "JACKFIELD_NET1_PCI="+vf3)
			if strings.Contains(out, "_EAL=") || nodesIn(out) != "" {
				t.Errorf("with %s the container has nodes or arguments for EAL:\n%s", driver, out)
			}
			check(t, h.explain(b.name), "would be created", "bound to a driver of the kernel")
		default:
			h.succeed(b, "JACKFIELD_NET1_EAL=-a "+vf3, groupNode(vf3), cdevNode(vf3))
			check(t, h.explain(b.name), "would be created", groupNode(vf3), cdevNode(vf3))
		}
	}
}

// The kernel keeps VFs that a container has open. After the container's end they are removed, and are missing for the
// next container.
func TestVFsAreRemovedUnderContainer(t *testing.T) {
	Require(t)
	bindAll(t, "vfio-pci", otherVF)
	h := newHost(t, config)
	c := h.start(box{name: "open", devices: []device{pci(otherVF)}, command: "exec " + probeTool + "hold " + groupNode(otherVF) + " " + otherVF})
	c.wait("mapped")
	removed := removeOpenVFs(t)
	c.stop("KILL")
	if err := <-removed; err != nil {
		t.Fatal(err)
	}
	h.refused(box{name: "gone", devices: []device{pci(otherVF)}}, "this host has no such device")
	if err := createVFs(t.Context(), pf1, 2); err != nil {
		t.Fatal(err)
	}
}

// removeOpenVFs removes the VFs of pf1, one of which is open, and returns when the kernel waits for its end. The channel
// reports the removal.
func removeOpenVFs(t *testing.T) <-chan error {
	t.Helper()
	if err := run(t.Context(), "dmesg", "-c"); err != nil {
		t.Fatal(err)
	}
	removed := make(chan error, 1)
	go func() { removed <- writeAttribute(pf1, "sriov_numvfs", "0") }()
	err := waitUntil(t.Context(), "the kernel to remove the VF", func() bool {
		log, err := exec.CommandContext(t.Context(), "dmesg").Output()
		return err == nil && strings.Contains(string(log), "blocked until released by user")
	})
	select {
	case rerr := <-removed:
		err = errors.Join(err, fmt.Errorf("the VFs were removed while one is open: %w", rerr))
	default:
	}
	if err != nil {
		t.Error(err)
	}
	return removed
}
