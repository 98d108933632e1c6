// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"path"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

const vfioContainer = "/dev/vfio/vfio"

// VFIO gives the nodes of a PCI function that is bound to a VFIO driver, sorted
// by path. Bound to another driver, or to none, it is ErrFailedPrecondition.
//
// The group's node, /dev/vfio/<group>, comes with /dev/vfio/vfio. A group named
// vfio-noiommu has the node /dev/vfio/noiommu-<group>; it keeps that name in the
// container, where DPDK and VPP look for it. The nodes of iommufd, the device's
// /dev/vfio/devices/vfio<N> and /dev/iommu, are given in addition when the host
// has both of them: the application chooses. A kernel built without group nodes
// has those alone; a host with neither is an error.
func VFIO(host hostfs.Root, address string) ([]Node, error) {
	l := lookup{"find VFIO nodes of PCI device", address}
	dev, err := l.pci(host)
	if err != nil {
		return nil, err
	}
	return l.vfio(host, dev)
}

func (l lookup) vfio(host hostfs.Root, dev PCIDevice) ([]Node, error) {
	if dev.Kind != KindVFIO {
		return nil, l.unbound(dev, "bind it to vfio-pci")
	}
	cdev, err := l.iommufd(host, dev)
	if err != nil {
		return nil, err
	}
	group, err := l.vfioGroup(host, dev)
	// Absent is no failure of a kernel that has the other interface; a node that
	// is there and is not what it should be always is one.
	if err != nil && !(errdefs.IsNotFound(err) && len(cdev) > 0) {
		return nil, err
	}
	return sorted(append(group, cdev...)), nil
}

// vfioGroup gives the group's node and the container's, both or none.
func (l lookup) vfioGroup(host hostfs.Root, dev PCIDevice) ([]Node, error) {
	from := path.Join(dev.Dir, "iommu_group")
	if dev.IOMMUGroup == "" {
		return nil, l.fail(from, errdefs.ErrNotFound,
			"switch on the IOMMU (intel_iommu=on or amd_iommu=on), or vfio's enable_unsafe_noiommu_mode",
			"the device is in no IOMMU group")
	}
	name := dev.IOMMUGroup
	if dev.NoIOMMU {
		name = "noiommu-" + dev.IOMMUGroup
	}
	group, err := l.node(host, path.Join("/dev/vfio", name), from, path.Join("/sys/class/vfio", name, "dev"), false)
	if err != nil {
		return nil, err
	}
	container, err := l.fixed(host, vfioContainer, "misc/vfio", from)
	if err != nil {
		return nil, err
	}
	return []Node{group, container}, nil
}
