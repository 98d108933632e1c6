// SPDX-License-Identifier: Apache-2.0

package sysfs_test

import (
	"testing"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/host/sysfs"
	"github.com/jackfield/jackfield/internal/host/sysfstest"
)

func TestDeviceOfNumber(t *testing.T) {
	tree := newTree(t)
	dev := func(minor uint32) sysfstest.Dev { return sysfstest.Dev{Major: 245, Minor: minor} }
	must(t,
		tree.AddPCI("0000:01:10.0", "vfio-pci", 13), tree.AddPCI("0000:01:10.1", "vfio-pci", 13), tree.AddVFIO(13, dev(0), dev(1)),
		tree.AddIOMMUFD("0000:01:10.0", 0, dev(2), dev(3)),
		tree.AddPCI("0000:02:00.0", "uio_pci_generic", sysfstest.NoGroup), tree.AddUIO("0000:02:00.0", 0, dev(4)),
		tree.AddVDPA("sim0", "vhost_vdpa", "", 0, dev(5)), tree.AddVDPA("vdpa1", "vhost_vdpa", "0000:02:00.0", 1, dev(6)),
		tree.AddPCI("0000:04:00.0", "mlx5_core", sysfstest.NoGroup), tree.AddRDMA("0000:04:00.0", "mlx5_0", 0, dev(7), dev(8)))
	for minor, want := range map[uint32]struct {
		text string
		pins bool
	}{
		0: {"PCI function 0000:01:10.0 and 0000:01:10.1", true}, 1: {"misc device vfio", false},
		2: {"PCI function 0000:01:10.0", true}, 3: {"misc device iommu", false}, 4: {"PCI function 0000:02:00.0", false},
		5: {"vDPA device sim0", true}, 6: {"vDPA device vdpa1 (0000:02:00.0)", true},
		7: {"RDMA device mlx5_0 (0000:04:00.0)", false}, 8: {"misc device rdma_cm", false}, // issm0 is the last of its number
	} {
		d, err := sysfs.DeviceOf(tree.Root(), false, 245, minor)
		if err != nil || d.String() != want.text || d.PinsMemory() != want.pins {
			t.Errorf("245:%d: %s, pins: %t, %v; want %+v", minor, &d, d.PinsMemory(), err, want)
		}
	}
	if _, err := sysfs.DeviceOf(tree.Root(), false, 245, 9); !errdefs.IsNotFound(err) {
		t.Errorf("a number without a device: %v", err)
	}
	if _, err := sysfs.DeviceOf(tree.Root(), true, 245, 0); !errdefs.IsNotFound(err) {
		t.Errorf("a block device: %v", err)
	}
}

func TestNumberThatLeadsToAnotherDevice(t *testing.T) {
	group := func(name string, functions ...string) sysfs.NumberedDevice {
		return sysfs.NumberedDevice{Class: "vfio", Name: name, Functions: functions}
	}
	tty := func(name string) sysfs.NumberedDevice { return sysfs.NumberedDevice{Class: "tty", Name: name} }
	for _, c := range []struct {
		before, now sysfs.NumberedDevice
		another     bool
	}{
		{group("13", "a"), group("13", "a"), false},
		{group("13", "a"), group("14", "a"), false}, // the same function in a group with another number
		{group("13", "a"), group("14", "b"), true},
		{group("13", "a"), group("13", "a", "b"), true},
		{group("13", "a", "b"), group("13", "a"), false},
		{group("13", "a"), tty("ttyUSB0"), true},
		{tty("ttyUSB0"), group("13", "a"), true},
		{tty("ttyUSB0"), tty("ttyUSB1"), true},
		{tty("ttyUSB0"), tty("ttyUSB0"), false},
		{tty("loop0"), sysfs.NumberedDevice{Class: "block", Name: "loop0"}, true},
	} {
		if got := c.before.IsAnother(&c.now); got != c.another {
			t.Errorf("%s, then %s: %t", &c.before, &c.now, got)
		}
	}
}
