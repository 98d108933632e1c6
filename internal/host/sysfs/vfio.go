// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"path"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

const vfioContainer = "/dev/vfio/vfio"

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
	return sortByPath(append(group, cdev...)), nil
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
	return []Node{device, iommu}, nil
}

// listVFIODevs returns the names in the function's vfio-dev directory.
func (l lookup) listVFIODevs(dev PCIDevice) ([]string, error) {
	return l.listDir(path.Join(dev.Dir, "vfio-dev"), hasNumber("vfio"))
}
