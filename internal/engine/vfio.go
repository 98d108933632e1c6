// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/host/sysfs"
	"github.com/jackfield/jackfield/internal/source/attachment"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// selectNodes returns the nodes that the container lacks. A device of VFIO can have the nodes of two interfaces, the
// IOMMU group and iommufd, and an application needs those of one. If the container has or is granted all nodes of one
// interface alone, the nodes of the other are omitted.
func selectNodes(nodes []nodeDecision) (missing, omitted []nodeDecision) {
	usable := func(i sysfs.VFIOInterface) (exists, complete bool) {
		complete = true
		for _, n := range nodes {
			if n.VFIO == i {
				exists, complete = true, complete && (n.present || !n.refused)
			}
		}
		return exists, complete
	}
	hasGroup, group := usable(sysfs.VFIOGroup)
	hasIOMMUFD, iommufd := usable(sysfs.IOMMUFD)
	var omit sysfs.VFIOInterface
	switch {
	case !hasGroup || !hasIOMMUFD || group == iommufd:
	case group:
		omit = sysfs.IOMMUFD
	default:
		omit = sysfs.VFIOGroup
	}
	for _, n := range nodes {
		switch {
		case omit != "" && n.VFIO == omit:
			omitted = append(omitted, n)
		case !n.present:
			missing = append(missing, n)
		}
	}
	return missing, omitted
}

// checkIOMMUGroup refuses a device of VFIO whose IOMMU group has a function of somebody else: a program that opens the
// group can use all functions in it.
func checkIOMMUGroup(in *inputs, a *attachment.Attachment, nodes []sysfs.Node) error {
	if a.Info.Type != deviceinfo.TypePCI || !slices.ContainsFunc(nodes, func(n sysfs.Node) bool { return n.VFIO != "" }) {
		return nil
	}
	group, peers, err := sysfs.GroupPeers(in.host, a.Info.PCI.PCIAddress)
	if err != nil {
		return fmt.Errorf("pci.pci-address: %w", err)
	}
	for _, peer := range peers {
		switch {
		case !in.ownsFunction(peer.Address):
			return fmt.Errorf("pci.pci-address: IOMMU group %s also has function %s (%s), which is not allocated to this "+
				"container, and a program that opens the group can use both; allocate all functions of the group to one "+
				"container, or move the device to a slot with a group of its own: %w",
				group, peer.Address, describeDriver(peer), errdefs.ErrFailedPrecondition)
		case peer.BlocksVFIO:
			return fmt.Errorf("pci.pci-address: no program can open IOMMU group %s, because function %s in it has %s; "+
				"bind it to vfio-pci, or to no driver: %w",
				group, peer.Address, describeDriver(peer), errdefs.ErrFailedPrecondition)
		}
	}
	return nil
}

func describeDriver(peer sysfs.GroupPeer) string {
	if peer.Driver == "" {
		return "no driver"
	}
	return fmt.Sprintf("driver %q", peer.Driver)
}

// ownsFunction reports whether a PCI function is allocated to this container.
func (in *inputs) ownsFunction(address string) bool {
	owns := func(a attachment.Attachment) bool {
		return a.Owner == attachment.OwnedHere && strings.EqualFold(a.Device, address)
	}
	return slices.ContainsFunc(in.attached, owns) || slices.ContainsFunc(in.allocated, owns)
}
