// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/sysfs"
	"github.com/jackfield/jackfield/internal/host/sysfstest"
)

// newHolderHost returns a host on which virtual functions were created again: the function of the request has the
// number 245:0.
func newHolderHost(t *testing.T) (*host, *sysfstest.Tree, *Request) {
	t.Helper()
	h := newHost(t, "enforce")
	tree, err := sysfstest.New(h.dir)
	testkit.Must(t, err)
	skipWithoutMknod(t, errors.Join(tree.AddPCI("0000:03:00.1", "vfio-pci", 11),
		tree.AddVFIO(11, sysfstest.Dev{Major: 245}, sysfstest.Dev{Major: 10, Minor: 196})))
	h.writeInfo("one", "net1", memlockInfo["vfio"])
	r := newRequest("")
	r.PodUID, r.Have.Env = "uid", []string{"PCIDEVICE_VENDOR_COM_VF=0000:03:00.1"}
	return h, tree, r
}

func heldVFIO(minor uint32, function string) HeldDevice {
	return HeldDevice{Path: "/dev/vfio/13", Type: "c", Major: 245, Minor: minor,
		Device: sysfs.NumberedDevice{Class: "vfio", Name: "13", Functions: []string{function}}}
}

// The kernel gives the number of a removed device to the next one, and a device cgroup grants numbers.
func TestFunctionThatAnotherContainerCanOpenIsRefused(t *testing.T) {
	const other, own = "0000:03:00.7", "0000:03:00.1"
	for name, c := range map[string]struct {
		holder Holder
		words  []string // of the refusal; nil for none
	}{
		"reused number":           {Holder{SandboxID: "old", ContainerID: "old", Devices: []HeldDevice{heldVFIO(0, other)}}, []string{"ns/old/c", "PCI function " + own, "245:0", other, "drain the node"}},
		"reused number, same pod": {Holder{SandboxID: "sb", ContainerID: "old", Container: "d", Devices: []HeldDevice{heldVFIO(0, other)}}, []string{"245:0", other}},
		"reused number of a tty": {Holder{SandboxID: "old", ContainerID: "old", Devices: []HeldDevice{{Type: "c", Major: 245, Device: sysfs.NumberedDevice{Class: "tty", Name: "ttyUSB0"}}}},
			[]string{"tty device ttyUSB0"}},
		"second of two devices":   {Holder{SandboxID: "old", ContainerID: "old", Devices: []HeldDevice{heldVFIO(1, other), heldVFIO(0, other)}}, []string{"245:0"}},
		"same function":           {Holder{SandboxID: "old", ContainerID: "old", Devices: []HeldDevice{heldVFIO(0, own)}}, []string{"ns/old/c", "belongs to one container"}},
		"same function, same pod": {Holder{SandboxID: "sb", ContainerID: "old", Container: "init", Devices: []HeldDevice{heldVFIO(0, own)}}, nil},
		"restarted container":     {Holder{SandboxID: "sb", ContainerID: "old", Container: "c", Devices: []HeldDevice{heldVFIO(0, other)}}, nil},
		"restarted pod":           {Holder{SandboxID: "old", PodUID: "uid", ContainerID: "old", Container: "c", Devices: []HeldDevice{heldVFIO(0, own)}}, nil},
		"container itself":        {Holder{SandboxID: "sb", ContainerID: "ctr", Devices: []HeldDevice{heldVFIO(0, own)}}, nil},
		"number of nothing":       {Holder{SandboxID: "old", ContainerID: "old", Devices: []HeldDevice{heldVFIO(5, own)}}, nil},
		"shared node":             {Holder{SandboxID: "old", ContainerID: "old", Devices: []HeldDevice{{Type: "c", Major: 10, Minor: 196, Device: sysfs.NumberedDevice{Class: "misc", Name: "vfio"}}}}, nil},
		"block device":            {Holder{SandboxID: "old", ContainerID: "old", Devices: []HeldDevice{{Type: "b", Major: 245, Device: sysfs.NumberedDevice{Class: "block", Name: "loop0"}}}}, nil},
		"nothing":                 {Holder{SandboxID: "old", ContainerID: "old"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h, _, r := newHolderHost(t)
			c.holder.Namespace, c.holder.Pod = "ns", "old"
			if c.holder.Container == "" {
				c.holder.Container = "c"
			}
			h.e.opts.Holders = func() []Holder { return []Holder{c.holder} }
			if c.words != nil {
				h.wantRefusal(r, errdefs.IsFailedPrecondition, c.words...)
				return
			}
			if p := h.resolve(r); len(p.Set.Devices) != 2 {
				t.Errorf("%+v", p.Items)
			}
		})
	}
}

// A function that the same container opened under another number belongs to nobody else.
func TestFunctionWithNewNumberIsFree(t *testing.T) {
	h, tree, r := newHolderHost(t)
	skipWithoutMknod(t, errors.Join(tree.AddPCI("0000:03:00.7", "vfio-pci", 12), tree.AddVFIO(12, sysfstest.Dev{Major: 245, Minor: 1}, sysfstest.Dev{Major: 10, Minor: 196})))
	h.e.opts.Holders = func() []Holder {
		return []Holder{{SandboxID: "old", ContainerID: "old", Devices: []HeldDevice{heldVFIO(1, "0000:03:00.1")}}}
	}
	if p := h.resolve(r); len(p.Set.Devices) != 2 {
		t.Errorf("%+v", p.Items)
	}
}

// The plan has the device of each node, also of those that a device plugin has added.
func TestPlanHasDeviceOfEachNode(t *testing.T) {
	for _, present := range []bool{false, true} {
		h, _, r := newHolderHost(t)
		if present {
			r.Have.Devices = []edit.Device{{Path: "/dev/vfio/11", Type: "c", Major: 245}, {Path: "/dev/vfio/vfio", Type: "c", Major: 10, Minor: 196}}
			r.Annotations = map[string]string{"networks.jackfield.dev": "net1"}
		}
		var got []string
		for _, d := range h.resolve(r).Devices {
			got = append(got, d.Path+" "+d.Number()+" "+d.Device.String())
		}
		if want := "/dev/vfio/11 245:0 PCI function 0000:03:00.1, /dev/vfio/vfio 10:196 misc device vfio"; strings.Join(got, ", ") != want {
			t.Errorf("present: %t: %q", present, got)
		}
	}
}

// Containers share an RDMA device of a CDI file, and not the device that the kubelet allocated to one of them.
func TestRDMADeviceOfFileIsShared(t *testing.T) {
	h, tree, r := newHolderHost(t)
	uverbs := sysfstest.Dev{Major: 231, Minor: 192}
	skipWithoutMknod(t, errors.Join(tree.AddPCI("0000:04:00.0", "mlx5_core", sysfstest.NoGroup), tree.AddRDMA("0000:04:00.0", "mlx5_0", 0, uverbs, sysfstest.Zero())))
	h.write("/etc/cdi/v.json", `{"cdiVersion":"0.6.0","kind":"vendor.com/net","devices":[{"name":"a","containerEdits":{"deviceNodes":[{"path":"/dev/infiniband/uverbs0"}]}}]}`)
	h.replaceConfig(strings.NewReplacer(`"/dev/vfio/*"`, `"/dev/infiniband/*"`, "MODE", "enforce").Replace(rules))
	h.e.opts.Holders = func() []Holder {
		device, err := sysfs.DeviceOf(tree.Root(), false, 231, 192)
		testkit.Must(t, err)
		return []Holder{{SandboxID: "old", ContainerID: "old", Devices: []HeldDevice{{Path: "/dev/infiniband/uverbs0", Type: "c", Major: 231, Minor: 192, Device: device}}}}
	}
	if p := h.resolve(newRequest("vendor.com/net=a")); len(p.Set.Devices) != 1 {
		t.Errorf("%+v", p.Items)
	}
	h.writeInfo("one", "net1", memlockInfo["rdma"])
	r.Have.Env = []string{"PCIDEVICE_VENDOR_COM_VF=0000:04:00.0"}
	h.wantRefusal(r, errdefs.IsFailedPrecondition, "RDMA device mlx5_0", "belongs to one container")
}
