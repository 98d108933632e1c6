// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/config/policy"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/host/sysfs"
	"github.com/jackfield/jackfield/internal/source/attachment"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// vhostNet is the character device of the kernel's vhost-net.
const vhostNet = "/dev/vhost-net"

// deviceDenied is why a running container gets no device node.
const deviceDenied = "a running container gets no device nodes: the device is there once the container is re-created"

// resolveDevice adds the nodes of a PCI or vDPA device, if it was allocated to
// this container.
func resolveDevice(in *inputs, d *delta, a *attachment.Attachment) error {
	if reason := unallocatedReason(a); reason != "" {
		// An annotation of the whole pod also applies to containers without the device.
		// An annotation of this container does not.
		if in.isKeyOfContainer(d.item.From) {
			return &RequestError{Annotation: d.item.From,
				Err: fmt.Errorf("%s; request it under the container's resources.limits: %w", reason, errdefs.ErrFailedPrecondition)}
		}
		d.item.SetOutcome(Unmanaged, errors.New(reason))
		return nil
	}
	found, err := findNodes(in.host, a)
	if err != nil {
		return &RequestError{File: a.File, Err: err}
	}
	missing, left := selectNodes(found.nodes, in.hasNode, in.grantsNode(a))
	if in.running && len(missing) > 0 {
		d.item.SetOutcome(Unmanaged, errors.New(deviceDenied))
		return nil
	}
	if !in.running {
		if err := checkIOMMUGroup(in, a, found.nodes); err != nil {
			return &RequestError{File: a.File, Err: err}
		}
	}
	if err := addNodes(in, d, a, missing); err != nil {
		return err
	}
	if len(left) > 0 {
		d.addNotes(fmt.Sprintf("no rule grants %s, which are VFIO's other interface to the device",
			strings.Join(nodePaths(left), " and ")))
	}
	for _, path := range a.Announced {
		if !slices.ContainsFunc(found.nodes, func(n sysfs.Node) bool { return n.Path == path }) {
			found.notes = append(found.notes, fmt.Sprintf("the device plugin announced %s for the device, "+
				"and sysfs gives the device no such node", path))
		}
	}
	d.addNotes(found.notes...)
	if len(found.nodes) == 0 {
		d.item.Outcome = Injected
	}
	d.view = newAttachmentEntry(a, placement{path: found.vdpaPath, note: found.noDPDK})
	if found.noDPDK != "" {
		d.view.element.Jackfield.EAL = nil
	}
	return nil
}

// selectNodes returns the nodes that the container lacks. A device of VFIO can have the nodes of two interfaces, and an
// application needs those of one: if only one of them has no node that is neither there nor granted, the nodes of the
// other are left.
func selectNodes(nodes []sysfs.Node, has, grants func(sysfs.Node) bool) (missing, left []sysfs.Node) {
	usable := map[sysfs.VFIOInterface]bool{}
	for _, n := range nodes {
		before, seen := usable[n.VFIO]
		usable[n.VFIO] = (before || !seen) && (has(n) || grants(n))
	}
	group, hasGroup := usable[sysfs.VFIOGroup]
	iommufd, hasIOMMUFD := usable[sysfs.IOMMUFD]
	alternatives := hasGroup && hasIOMMUFD && group != iommufd
	for _, n := range nodes {
		switch {
		case alternatives && n.VFIO != "" && !usable[n.VFIO]:
			left = append(left, n)
		case !has(n):
			missing = append(missing, n)
		}
	}
	return missing, left
}

func nodePaths(nodes []sysfs.Node) []string {
	paths := make([]string, len(nodes))
	for i, n := range nodes {
		paths[i] = n.Path
	}
	return paths
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

// addNodes adds nodes of a device, if policy grants all of them.
func addNodes(in *inputs, d *delta, a *attachment.Attachment, nodes []sysfs.Node) error {
	grants, err := in.policy.Devices(in.subjectFor(a), nodePaths(nodes))
	if err != nil {
		// A rule that grants a node of this device and not the others is a mistake, and the container is refused: see
		// resolveAttachment. A grant of a node that all devices share is none for this device.
		for i, g := range grants {
			if !nodes[i].Shared {
				d.item.Rule = cmp.Or(d.item.Rule, g.Rule)
			}
		}
		return err
	}
	for i, n := range nodes {
		if err := addNode(in, d, a, n, grants[i]); err != nil {
			return err
		}
	}
	return nil
}

// addNode adds one node of a device that policy grants.
func addNode(in *inputs, d *delta, a *attachment.Attachment, n sysfs.Node, grant policy.Grant) error {
	d.item.noteGrant(grant)
	d.item.Rule = cmp.Or(d.item.Rule, grant.Rule)
	d.item.Outcome = Injected // also if another device brought the node
	origin := edit.Origin{Source: edit.Attachment, Request: d.item.Request, File: a.File, Field: n.From, Rule: grant.Rule}
	mode := n.FileMode
	device := edit.Device{Path: n.Path, HostPath: n.Path, Type: "c", Major: int64(n.Major), Minor: int64(n.Minor),
		FileMode: &mode, Access: "rw", Origin: origin}
	if u := in.req.User; u != nil {
		device.UID, device.GID = &u.UID, &u.GID
	}
	return d.edits.AddDevice(&device)
}

// unallocatedReason returns why a device does not belong to this container, or "".
func unallocatedReason(a *attachment.Attachment) string {
	switch a.Owner {
	case attachment.OwnedHere:
		return ""
	case attachment.OwnedElsewhere:
		return "the kubelet allocated the device to another container of the pod"
	}
	return "nothing on the node says that the device was allocated to this container"
}

// deviceNodes are the nodes of a PCI or vDPA device.
type deviceNodes struct {
	nodes    []sysfs.Node
	vdpaPath string   // of the node of a vDPA device, "" for others
	notes    []string // for the user
	noDPDK   string   // why DPDK cannot use a PCI function; "" if it can
}

// findNodes looks up the device nodes of a PCI or vDPA attachment in sysfs.
func findNodes(host hostfs.Root, a *attachment.Attachment) (deviceNodes, error) {
	switch a.Info.Type {
	case deviceinfo.TypePCI:
		return findPCINodes(host, a.Info.PCI)
	case deviceinfo.TypeVDPA:
		return findVDPANodes(host, a)
	}
	return deviceNodes{}, fmt.Errorf("type: found %q: %w", a.Info.Type, errdefs.ErrNotImplemented)
}

func findPCINodes(host hostfs.Root, pci *deviceinfo.PCI) (found deviceNodes, err error) {
	found.nodes, err = sysfs.Nodes(host, pci.PCIAddress)
	if err != nil {
		return found, fmt.Errorf("pci.pci-address: %w", err)
	}
	kernelDriver := len(found.nodes) == 0
	if pci.VhostNet != "" {
		if pci.VhostNet != vhostNet {
			return found, fmt.Errorf("pci.vhost-net: invalid value %q: must be %s, the kernel's only such node: %w",
				pci.VhostNet, vhostNet, errdefs.ErrInvalidArgument)
		}
		vhost, err := sysfs.VhostNet(host)
		if err != nil {
			return found, fmt.Errorf("pci.vhost-net: %w", err)
		}
		found.nodes = append(found.nodes, vhost...)
	}
	if names := pci.RDMADevices(); len(names) > 0 {
		rdma, err := sysfs.RDMA(host, pci.PCIAddress, names)
		if err != nil {
			return found, fmt.Errorf("pci.rdma-device: %w", err)
		}
		found.nodes = append(found.nodes, rdma...)
		kernelDriver = kernelDriver && len(rdma) == 0 // DPDK uses some functions through RDMA, beside their driver
	}
	if kernelDriver {
		found.noDPDK = "the function is bound to a driver of the kernel, so DPDK cannot use it"
	}
	if len(found.nodes) == 0 {
		found.notes = append(found.notes, "the device is bound to a driver of the kernel: it needs no device node")
	}
	return found, nil
}

// findVDPANodes resolves a vDPA device from its parent-device, not from the path in
// device-info. Device-info is untrusted: the device must be
// the allocated one, by its name or by the PCI function below it.
func findVDPANodes(host hostfs.Root, a *attachment.Attachment) (found deviceNodes, err error) {
	vdpa := a.Info.VDPA
	if vdpa.Driver == deviceinfo.VDPAVirtio {
		found.notes = append(found.notes, "vdpa with the virtio driver is a network interface: it needs no device node")
		return found, nil
	}
	dev, err := sysfs.VDPA(host, vdpa.ParentDevice)
	if err != nil {
		return found, fmt.Errorf("vdpa.parent-device: %w", err)
	}
	if dev.Driver != string(vdpa.Driver) {
		return found, fmt.Errorf("vdpa.driver: found %q, but %s/driver says %q: %w",
			vdpa.Driver, dev.Dir, dev.Driver, errdefs.ErrConflict)
	}
	if !strings.EqualFold(a.Device, dev.Name) && !strings.EqualFold(a.Device, dev.Address) {
		return found, fmt.Errorf("vdpa.parent-device: found %q, which belongs to PCI function %q, "+
			"but the kubelet allocated %q: %w", vdpa.ParentDevice, dev.Address, a.Device, errdefs.ErrConflict)
	}
	found.nodes = dev.Nodes
	for _, n := range dev.Nodes {
		found.vdpaPath = n.Path
		if vdpa.Path != n.Path {
			found.notes = append(found.notes,
				fmt.Sprintf("vdpa.path is %q, and the device's node is %s at this moment", vdpa.Path, n.Path))
		}
	}
	return found, nil
}
