// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"path"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

const pciDevices = "/sys/bus/pci/devices"

// PCIDevice is what sysfs says about one PCI function.
type PCIDevice struct {
	Address    string // the kernel's spelling, "0000:03:00.3"
	Dir        string // /sys/bus/pci/devices/<address>
	Driver     string // driver: the name it links to, "" when none is bound
	Kind       Kind   // what nodes the driver calls for
	IOMMUGroup string // iommu_group: the number it links to, "" without an IOMMU
	NoIOMMU    bool   // iommu_group/name is vfio-noiommu
	Physical   string // physfn: the physical function's address, "" unless this is a virtual function
}

// Kind is what a device's driver means for its nodes.
type Kind string

// The kinds of driver.
const (
	KindNone   Kind = "none"   // no driver, or one that only reserves the device: nobody can use it
	KindKernel Kind = "kernel" // the kernel's own (iavf, mlx5_core, ...): it is used without a node
	KindVFIO   Kind = "vfio"   // see [VFIO]
	KindUIO    Kind = "uio"    // see [UIO]
)

// PCI reads one PCI function. A device that does not exist is ErrNotFound.
func PCI(host hostfs.Root, address string) (PCIDevice, error) {
	return lookup{"read PCI device", address}.pci(host)
}

// Nodes gives the nodes that the driver bound to the function calls for, sorted
// by path: VFIO nodes under a VFIO driver (see [VFIO]), UIO nodes under a UIO
// driver (see [UIO]), and none, without an error, under a driver of the kernel's
// own (iavf, mlx5_core, virtio-pci, ...). A device without any driver, or with
// one that only reserves it, is ErrFailedPrecondition.
func Nodes(host hostfs.Root, address string) ([]Node, error) {
	l := lookup{"find device nodes of PCI device", address}
	dev, err := l.pci(host)
	switch {
	case err != nil:
		return nil, err
	case dev.Kind == KindVFIO:
		return l.vfio(host, dev)
	case dev.Kind == KindUIO:
		return l.uio(host, dev)
	case dev.Kind == KindKernel:
		return nil, nil
	}
	return nil, l.unbound(dev, "bind it to vfio-pci or to its network driver")
}

func (l lookup) pci(host hostfs.Root) (PCIDevice, error) {
	address, err := ParseAddress(l.device)
	if err != nil {
		return PCIDevice{}, &Error{Op: l.op, Device: l.device, Problem: err.Error(), Err: errdefs.ErrInvalidArgument}
	}
	dev := PCIDevice{Address: address, Dir: path.Join(pciDevices, address)}
	if _, err := host.Stat(dev.Dir); err != nil {
		hint := ""
		if errdefs.IsNotFound(err) {
			hint = "this host has no such device; lspci -D lists those it has"
		}
		return PCIDevice{}, l.wrap(dev.Dir, err, hint)
	}
	driver, err := l.link(host, path.Join(dev.Dir, "driver"))
	if err != nil {
		return PCIDevice{}, err
	}
	if driver != "" {
		dev.Driver = path.Base(driver)
	}
	if dev.Kind, err = l.classify(host, dev); err != nil {
		return PCIDevice{}, err
	}
	if err := l.group(host, &dev); err != nil {
		return PCIDevice{}, err
	}
	physical := path.Join(dev.Dir, "physfn")
	target, err := l.link(host, physical)
	if err != nil {
		return PCIDevice{}, err
	}
	if target != "" {
		if dev.Physical, err = ParseAddress(path.Base(target)); err != nil {
			return PCIDevice{}, l.fail(physical, errdefs.ErrInvalidArgument, "", "it links to %q, which is no PCI device", target)
		}
	}
	return dev, nil
}

// classify decides by the driver what kind of nodes the device has.
func (l lookup) classify(host hostfs.Root, dev PCIDevice) (Kind, error) {
	switch dev.Driver {
	case "", "pci-stub", "pciback", "xen-pciback":
		return KindNone, nil
	case "vfio-pci":
		return KindVFIO, nil
	case "igb_uio", "uio_pci_generic":
		return KindUIO, nil
	}
	// Variant drivers (mlx5_vfio_pci, hisi-acc-vfio-pci, ...) are many; what they
	// share is the name's ending, and on kernels from 6.1 the vfio-dev directory.
	if strings.HasSuffix(strings.ReplaceAll(dev.Driver, "_", "-"), "-vfio-pci") {
		return KindVFIO, nil
	}
	names, err := l.vfioDevs(host, dev)
	if err != nil || len(names) == 0 {
		return KindKernel, err
	}
	return KindVFIO, nil
}

// group reads iommu_group and iommu_group/name.
func (l lookup) group(host hostfs.Root, dev *PCIDevice) error {
	file := path.Join(dev.Dir, "iommu_group")
	target, err := l.link(host, file)
	if err != nil || target == "" {
		return err
	}
	group := path.Base(target)
	if _, ok := number(group, ""); !ok {
		return l.fail(file, errdefs.ErrInvalidArgument, "", "it links to %q, which is no IOMMU group", target)
	}
	dev.IOMMUGroup = group
	// The kernel makes the file only for groups that were given a name.
	name, _, err := l.read(host, path.Join(file, "name"))
	dev.NoIOMMU = name == "vfio-noiommu"
	return err
}

// unbound is the error for a device whose driver gives no node.
func (l lookup) unbound(dev PCIDevice, hint string) error {
	file := path.Join(dev.Dir, "driver")
	if dev.Driver == "" {
		return l.fail(file, errdefs.ErrFailedPrecondition, hint, "the device is bound to no driver")
	}
	return l.fail(file, errdefs.ErrFailedPrecondition, hint, "the device is bound to driver %q", dev.Driver)
}
