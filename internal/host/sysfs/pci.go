// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"fmt"
	"path"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

const pciDevices = "/sys/bus/pci/devices"

// PCIDevice describes one PCI function.
type PCIDevice struct {
	Address    string // as the kernel writes it, "0000:03:00.3"
	Dir        string // /sys/bus/pci/devices/<address>
	Driver     string // target of driver; "" if none is bound
	Kind       Kind   // of the driver
	IOMMUGroup string // number in the target of iommu_group; "" without an IOMMU
	NoIOMMU    bool   // iommu_group/name is vfio-noiommu
	Physical   string // target of physfn, the physical function's address; "" unless this is a virtual function
}

// Kind is the type of device nodes that a driver provides.
type Kind string

// The kinds of driver.
const (
	KindNone   Kind = "none"   // no driver, or one that only reserves the device: the device is unusable
	KindKernel Kind = "kernel" // a network driver or the like (iavf, mlx5_core, ...): it provides no node
	KindVFIO   Kind = "vfio"   // /dev/vfio/<group>, or the nodes of iommufd
	KindUIO    Kind = "uio"    // /dev/uio<N>
)

// PCI reads one PCI function. A device that does not exist is ErrNotFound.
func PCI(host hostfs.Root, address string) (PCIDevice, error) {
	return lookup{host, "read PCI device", address}.readPCI()
}

// Nodes returns the device nodes that the function's driver provides, sorted by
// path. The kernel's own drivers (iavf, mlx5_core, virtio-pci, ...) provide none,
// which is no error. A device without a driver, or with one that only reserves it,
// is ErrFailedPrecondition.
//
// A VFIO driver provides the group's node, /dev/vfio/<group>, and /dev/vfio/vfio. A
// group named vfio-noiommu has the node /dev/vfio/noiommu-<group>, which keeps that
// name in the container, where DPDK and VPP look for it. The nodes of iommufd, the
// device's /dev/vfio/devices/vfio<N> and /dev/iommu, are added if the host has both:
// the application chooses. A kernel built without group nodes has those alone; a
// host with neither is an error.
//
// igb_uio and uio_pci_generic provide /dev/uio<N>.
func Nodes(host hostfs.Root, address string) ([]Node, error) {
	l := lookup{host, "find device nodes of PCI device", address}
	dev, err := l.readPCI()
	switch {
	case err != nil:
		return nil, err
	case dev.Kind == KindVFIO:
		return l.findVFIO(dev)
	case dev.Kind == KindUIO:
		return l.findUIO(dev)
	case dev.Kind == KindKernel:
		return nil, nil
	}
	problem := "the device is bound to no driver"
	if dev.Driver != "" {
		problem = fmt.Sprintf("the device is bound to driver %q", dev.Driver)
	}
	return nil, l.newError(path.Join(dev.Dir, "driver"), errdefs.ErrFailedPrecondition,
		"bind it to vfio-pci or to its network driver", "%s", problem)
}

func (l lookup) readPCI() (PCIDevice, error) {
	address, err := ParseAddress(l.device)
	if err != nil {
		return PCIDevice{}, l.wrapError("", err, "")
	}
	dev := PCIDevice{Address: address, Dir: path.Join(pciDevices, address)}
	if _, err := l.host.Stat(dev.Dir); err != nil {
		return PCIDevice{}, l.wrapError(dev.Dir, err, "this host has no such device; lspci -D lists its devices")
	}
	driver, err := l.readLink(path.Join(dev.Dir, "driver"))
	if err != nil {
		return PCIDevice{}, err
	}
	if driver != "" {
		dev.Driver = path.Base(driver)
	}
	if dev.Kind, err = l.classify(dev); err != nil {
		return PCIDevice{}, err
	}
	if err := l.readGroup(&dev); err != nil {
		return PCIDevice{}, err
	}
	physical := path.Join(dev.Dir, "physfn")
	target, err := l.readLink(physical)
	if err != nil {
		return PCIDevice{}, err
	}
	if target != "" {
		if dev.Physical, err = ParseAddress(path.Base(target)); err != nil {
			return PCIDevice{}, l.newError(physical, errdefs.ErrInvalidArgument, "",
				"it links to %q, which is not a PCI device", target)
		}
	}
	return dev, nil
}

// classify returns the kind of the device's driver.
func (l lookup) classify(dev PCIDevice) (Kind, error) {
	switch dev.Driver {
	case "", "pci-stub", "pciback", "xen-pciback":
		return KindNone, nil
	case "vfio-pci":
		return KindVFIO, nil
	case "igb_uio", "uio_pci_generic":
		return KindUIO, nil
	}
	// Variant drivers (mlx5_vfio_pci, hisi-acc-vfio-pci, ...) share the end of the
	// name and, from Linux 6.1, the vfio-dev directory.
	if strings.HasSuffix(strings.ReplaceAll(dev.Driver, "_", "-"), "-vfio-pci") {
		return KindVFIO, nil
	}
	names, err := l.listVFIODevs(dev)
	if err != nil || len(names) == 0 {
		return KindKernel, err
	}
	return KindVFIO, nil
}

// readGroup reads iommu_group and iommu_group/name.
func (l lookup) readGroup(dev *PCIDevice) error {
	file := path.Join(dev.Dir, "iommu_group")
	target, err := l.readLink(file)
	if err != nil || target == "" {
		return err
	}
	group := path.Base(target)
	if _, ok := parseNumber(group, ""); !ok {
		return l.newError(file, errdefs.ErrInvalidArgument, "", "it links to %q, which is not an IOMMU group", target)
	}
	dev.IOMMUGroup = group
	// The file exists only for groups that have a name.
	name, _, err := l.readAttribute(path.Join(file, "name"))
	dev.NoIOMMU = name == "vfio-noiommu"
	return err
}
