// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

const vfioContainer = "/dev/vfio/vfio"

// VFIOInterface is one of the two interfaces through which a program opens a device of VFIO. The kernel's configuration
// decides which of them a host has, and a program needs all nodes of one.
type VFIOInterface string

// The interfaces of VFIO.
const (
	VFIOGroup VFIOInterface = "group"   // /dev/vfio/<group> and /dev/vfio/vfio
	IOMMUFD   VFIOInterface = "iommufd" // /dev/vfio/devices/vfio<N> and /dev/iommu
)

// findVFIO returns the nodes of a PCI function bound to a VFIO driver; see [Nodes].
func (l lookup) findVFIO(dev PCIDevice) ([]Node, error) {
	cdev, err := l.findIOMMUFD(dev)
	if err != nil {
		return nil, err
	}
	group, err := l.findVFIOGroup(dev)
	// Where iommufd's nodes exist the group's may be absent, but not wrong.
	if err != nil && !(errdefs.IsNotFound(err) && len(cdev) > 0) {
		return nil, err
	}
	for i := range group {
		group[i].VFIO = VFIOGroup
	}
	for i := range cdev {
		cdev[i].VFIO = IOMMUFD
	}
	return sortByPath(append(group, cdev...)), nil
}

// GroupPeer is another PCI function in the IOMMU group of a device.
type GroupPeer struct {
	Address string // as the kernel writes it, "0000:06:02.0"
	Driver  string // "" for none
	// BlocksVFIO means that the driver uses the device on the host, so that nobody can open the group.
	BlocksVFIO bool
}

// GroupPeers returns the IOMMU group of a PCI function and the other functions in it, sorted by address. Bridges are
// left out, because VFIO gives nobody access to them. A function without an IOMMU, or in no group, has no peers. The
// functions of a group can access each other's memory, and a program that opens the group can use all of them.
func GroupPeers(host hostfs.Root, address string) (group string, peers []GroupPeer, _ error) {
	l := lookup{host, "read IOMMU group of PCI device", address}
	dev, err := l.readPCI()
	if err != nil || dev.IOMMUGroup == "" || dev.NoIOMMU {
		return dev.IOMMUGroup, nil, err
	}
	names, err := l.listDir(path.Join(dev.Dir, "iommu_group/devices"), isPCIAddress)
	if err != nil {
		return "", nil, err
	}
	slices.Sort(names)
	for _, name := range names {
		if name == dev.Address {
			continue
		}
		class, _, err := l.readAttribute(path.Join(pciDevices, name, "class"))
		if err != nil {
			return "", nil, err
		}
		if strings.HasPrefix(class, "0x06") { // PCI_BASE_CLASS_BRIDGE
			continue
		}
		peer, err := lookup{host, l.op, name}.readPCI()
		if err != nil {
			return "", nil, err
		}
		peers = append(peers, GroupPeer{Address: peer.Address, Driver: peer.Driver,
			BlocksVFIO: peer.Driver != "" && peer.Kind != KindVFIO && peer.Kind != KindNone})
	}
	return dev.IOMMUGroup, peers, nil
}

func isPCIAddress(name string) bool {
	_, err := ParseAddress(name)
	return err == nil
}

// findVFIOGroup returns the group's node and /dev/vfio/vfio.
func (l lookup) findVFIOGroup(dev PCIDevice) ([]Node, error) {
	from := path.Join(dev.Dir, "iommu_group")
	if dev.IOMMUGroup == "" {
		return nil, l.newError(from, errdefs.ErrNotFound,
			"enable the IOMMU (intel_iommu=on or amd_iommu=on), or vfio's enable_unsafe_noiommu_mode",
			"the device is in no IOMMU group")
	}
	name := dev.IOMMUGroup
	if dev.NoIOMMU {
		name = "noiommu-" + dev.IOMMUGroup
	}
	group, err := l.statNode(path.Join("/dev/vfio", name), from, path.Join("/sys/class/vfio", name, "dev"), false)
	if err != nil {
		return nil, err
	}
	container, err := l.statFixedNode(vfioContainer, "misc/vfio", from)
	if err != nil {
		return nil, err
	}
	group.PinsMemory = true
	return []Node{group, container}, nil
}

const iommuNode = "/dev/iommu"

// findIOMMUFD returns the device's own VFIO node and /dev/iommu, or neither: an
// application needs both. Most kernels have neither.
func (l lookup) findIOMMUFD(dev PCIDevice) ([]Node, error) {
	names, err := l.listVFIODevs(dev)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	dir := path.Join(dev.Dir, "vfio-dev")
	if len(names) > 1 {
		return nil, l.newError(dir, errdefs.ErrInvalidArgument, "", "it holds %d devices (%q, %q, ...) instead of one",
			len(names), names[0], names[1])
	}
	from := path.Join(dir, names[0])
	// A kernel without CONFIG_VFIO_DEVICE_CDEV, and a device without an IOMMU, has
	// the directory but no numbers in it.
	if _, ok, err := l.readAttribute(path.Join(from, "dev")); err != nil || !ok {
		return nil, err
	}
	device, err := l.statNode(path.Join("/dev/vfio/devices", names[0]), from, path.Join(from, "dev"), true)
	if err != nil {
		return nil, hostfs.IgnoreNotFound(err)
	}
	iommu, err := l.statFixedNode(iommuNode, "misc/iommu", from)
	if err != nil {
		return nil, hostfs.IgnoreNotFound(err)
	}
	device.PinsMemory = true
	return []Node{device, iommu}, nil
}

// listVFIODevs returns the names in the function's vfio-dev directory.
func (l lookup) listVFIODevs(dev PCIDevice) ([]string, error) {
	return l.listDir(path.Join(dev.Dir, "vfio-dev"), hasNumber("vfio"))
}
