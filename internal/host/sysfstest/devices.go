// SPDX-License-Identifier: Apache-2.0

package sysfstest

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
)

// NoGroup as a group leaves a PCI function without an IOMMU group.
const NoGroup = -1

// virtual is the directory of devices without hardware.
const virtual = "/sys/devices/virtual"

// pciDir returns the directory of a PCI function.
func pciDir(address string) string { return filepath.Join("/sys/devices/pci0000:00", address) }

// AddPCI creates a PCI function bound to driver ("" for none) in an IOMMU group
// (NoGroup for none). Called again it rebinds the function and moves it.
func (t *Tree) AddPCI(address, driver string, group int) error {
	dir := pciDir(address)
	errs := []error{t.addToBus("pci", address, dir, driver), t.Remove(filepath.Join(dir, "iommu_group"))}
	if group != NoGroup {
		to := filepath.Join("/sys/kernel/iommu_groups", strconv.Itoa(group))
		errs = append(errs,
			t.Link(filepath.Join(to, "devices", address), dir),
			t.Link(filepath.Join(dir, "iommu_group"), to))
	}
	return errors.Join(errs...)
}

// AddVF turns address into a virtual function of the function physical.
func (t *Tree) AddVF(address, physical string) error {
	return t.Link(filepath.Join(pciDir(address), "physfn"), pciDir(physical))
}

// AddVFIO creates the node of an IOMMU group, mode 0600, and /dev/vfio/vfio with
// the numbers container, mode 0666.
func (t *Tree) AddVFIO(group int, dev, container Dev) error {
	name := strconv.Itoa(group)
	return errors.Join(
		t.addToClass("vfio", virtual, name, "/dev/vfio/"+name, 0o600, dev),
		t.addToClass("misc", virtual, "vfio", "/dev/vfio/vfio", 0o666, container),
	)
}

// AddNoIOMMU names the group vfio-noiommu and creates its node, mode 0600, and
// /dev/vfio/vfio with the numbers container, mode 0666.
func (t *Tree) AddNoIOMMU(group int, dev, container Dev) error {
	name := fmt.Sprintf("noiommu-%d", group)
	return errors.Join(
		t.WriteFile(fmt.Sprintf("/sys/kernel/iommu_groups/%d/name", group), "vfio-noiommu\n"),
		t.addToClass("vfio", virtual, name, "/dev/vfio/"+name, 0o600, dev),
		t.addToClass("misc", virtual, "vfio", "/dev/vfio/vfio", 0o666, container),
	)
}

// AddIOMMUFD adds the VFIO device vfio<index> to the function, with its node, mode
// 0600, and creates /dev/iommu with the numbers iommu, mode 0600.
func (t *Tree) AddIOMMUFD(address string, index int, dev, iommu Dev) error {
	name := fmt.Sprintf("vfio%d", index)
	return errors.Join(
		t.addToClass("vfio-dev", pciDir(address), name, "/dev/vfio/devices/"+name, 0o600, dev),
		t.addToClass("misc", virtual, "iommu", "/dev/iommu", 0o600, iommu),
	)
}

// AddUIO adds the device uio<index> to the function, with its node, mode 0600.
func (t *Tree) AddUIO(address string, index int, dev Dev) error {
	name := fmt.Sprintf("uio%d", index)
	return t.addToClass("uio", pciDir(address), name, "/dev/"+name, 0o600, dev)
}

// AddVhostNet creates /dev/vhost-net, mode 0660, and /dev/net/tun, mode 0666.
func (t *Tree) AddVhostNet(vhost, tun Dev) error {
	return errors.Join(
		t.addToClass("misc", virtual, "vhost-net", "/dev/vhost-net", 0o660, vhost),
		t.addToClass("misc", virtual, "tun", "/dev/net/tun", 0o666, tun),
	)
}

// AddRDMA adds the RDMA device ibdev to the function, with uverbs<index>, mode 0666,
// umad<index> and issm<index>, mode 0600, all with the numbers dev, and creates
// /dev/infiniband/rdma_cm with the numbers cm, mode 0666.
func (t *Tree) AddRDMA(address, ibdev string, index int, dev, cm Dev) error {
	errs := []error{
		t.Mkdir(filepath.Join(pciDir(address), "infiniband", ibdev)),
		t.addToClass("misc", virtual, "rdma_cm", "/dev/infiniband/rdma_cm", 0o666, cm),
	}
	for _, c := range []struct {
		class, prefix string
		mode          uint32
	}{{"infiniband_verbs", "uverbs", 0o666}, {"infiniband_mad", "umad", 0o600}, {"infiniband_mad", "issm", 0o600}} {
		name := c.prefix + strconv.Itoa(index)
		errs = append(errs,
			t.addToClass(c.class, pciDir(address), name, "/dev/infiniband/"+name, c.mode, dev),
			t.WriteFile(filepath.Join(pciDir(address), c.class, name, "ibdev"), ibdev+"\n"))
	}
	return errors.Join(errs...)
}

// AddVDPA creates a vDPA device bound to driver ("vhost_vdpa", "virtio_vdpa", "" for
// none), below the PCI function parent ("" for a software device). Under
// vhost_vdpa it gets vhost-vdpa-<index> and its node, mode 0600. Called again it
// rebinds the device.
func (t *Tree) AddVDPA(name, driver, parent string, index int, dev Dev) error {
	dir := filepath.Join(virtual, name)
	if parent != "" {
		dir = filepath.Join(pciDir(parent), name)
	}
	errs := []error{t.Remove(dir), t.addToBus("vdpa", name, dir, driver)}
	if driver == "vhost_vdpa" {
		node := fmt.Sprintf("vhost-vdpa-%d", index)
		errs = append(errs,
			t.WriteFile(filepath.Join(dir, node, "dev"), dev.String()+"\n"),
			t.Link(numberLink(dev), filepath.Join(dir, node)),
			t.Node("/dev/"+node, 0o600, dev))
	}
	return errors.Join(errs...)
}

// addToBus creates the directory dir of a device on a bus, bound to driver ("" for none).
func (t *Tree) addToBus(bus, name, dir, driver string) error {
	errs := []error{
		t.Mkdir(dir),
		t.Link(filepath.Join("/sys/bus", bus, "devices", name), dir),
		t.Remove(filepath.Join(dir, "driver")),
	}
	if driver != "" {
		to := filepath.Join("/sys/bus", bus, "drivers", driver)
		errs = append(errs, t.Mkdir(to), t.Link(filepath.Join(dir, "driver"), to))
	}
	return errors.Join(errs...)
}

// addToClass creates a device of a class below parent, as drivers do, linked from the class, and its node.
func (t *Tree) addToClass(class, parent, name, node string, mode uint32, dev Dev) error {
	dir := filepath.Join(parent, class, name)
	return errors.Join(
		t.WriteFile(filepath.Join(dir, "dev"), dev.String()+"\n"),
		t.Link(filepath.Join("/sys/class", class, name), dir),
		t.Link(filepath.Join(dir, "subsystem"), filepath.Join("/sys/class", class)),
		t.Link(numberLink(dev), dir),
		t.Node(node, mode, dev),
	)
}

// numberLink returns the path by which the kernel finds a character device by its number. If several devices of a tree
// have one number, it leads to the last one.
func numberLink(dev Dev) string { return "/sys/dev/char/" + dev.String() }
