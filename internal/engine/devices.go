// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/sysfs"
	"github.com/jackfield/jackfield/internal/source/attachment"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// vhostNet is the character device of the kernel's vhost-net.
const vhostNet = "/dev/vhost-net"

// deliverDevice adds the nodes of a PCI or vDPA device, if it was allocated to
// this container.
func (p *planner) deliverDevice(a *attachment.Attachment, origin edit.Origin, item *Item) error {
	if reason := unallocatedReason(a); reason != "" {
		// An annotation of the whole pod also applies to containers without the device.
		// An annotation of this container does not.
		if p.isForThisContainer(item.From) {
			return &RequestError{Annotation: item.From, Err: fmt.Errorf("%s; request it under the container's resources.limits: %w", reason, errdefs.ErrFailedPrecondition)}
		}
		item.Decline(Unmanaged, errors.New(reason))
		return nil
	}
	v := viewEntry{att: a}
	nodes, err := p.nodesOf(a, &v)
	if err != nil {
		return &RequestError{File: a.File, Err: err}
	}
	for _, n := range nodes {
		if p.hasNode(n) {
			continue
		}
		if p.noDevice != "" {
			item.Decline(Unmanaged, errors.New(p.noDevice))
			return nil
		}
		grant, err := p.policy.Device(p.subjectFor(a), n.Path)
		if err != nil {
			return err
		}
		item.noteGrant(grant)
		item.Rule = cmp.Or(item.Rule, grant.Rule)
		origin.Rule, origin.Field = grant.Rule, n.From
		mode := n.FileMode
		d := edit.Device{Path: n.Path, HostPath: n.Path, Type: "c", Major: int64(n.Major), Minor: int64(n.Minor),
			FileMode: &mode, Access: "rw", Origin: origin}
		if u := p.req.User; u != nil {
			d.UID, d.GID = &u.UID, &u.GID
		}
		if err := p.b.AddDevice(&d); err != nil {
			return err
		}
		item.Outcome = Injected // also if another device brought the node
	}
	for _, path := range a.Announced {
		if !slices.ContainsFunc(nodes, func(n sysfs.Node) bool { return n.Path == path }) {
			v.notes = append(v.notes, fmt.Sprintf("the device plugin announced %s for the device, and sysfs gives the device no such node", path))
		}
	}
	item.Notes = append(item.Notes, v.notes...)
	if len(nodes) == 0 {
		item.Outcome = Injected
	}
	p.addToView(v)
	return nil
}

// hasNode reports whether the container has the node already, from the device plugin
// or the runtime.
func (p *planner) hasNode(n sysfs.Node) bool {
	return slices.ContainsFunc(p.req.Have.Devices, func(d edit.Device) bool {
		return edit.SameContainerPath(d.Path, n.Path) && d.Type == "c" && d.Major == int64(n.Major) && d.Minor == int64(n.Minor)
	})
}

// unallocatedReason returns why a device is not this container's, or "".
func unallocatedReason(a *attachment.Attachment) string {
	switch a.Owner {
	case attachment.OwnedHere:
		return ""
	case attachment.OwnedElsewhere:
		return "the kubelet allocated the device to another container of the pod"
	}
	return "nothing on the node says that the device was allocated to this container"
}

// nodesOf looks up the device nodes of a PCI or vDPA attachment, as sysfs has
// them at this moment.
func (p *planner) nodesOf(a *attachment.Attachment, v *viewEntry) ([]sysfs.Node, error) {
	switch a.Info.Type {
	case deviceinfo.TypePCI:
		return p.pciNodes(a.Info.PCI, v)
	case deviceinfo.TypeVDPA:
		return p.vdpaNodes(a, v)
	}
	return nil, fmt.Errorf("type: found %q: %w", a.Info.Type, errdefs.ErrNotImplemented)
}

func (p *planner) pciNodes(pci *deviceinfo.PCI, v *viewEntry) ([]sysfs.Node, error) {
	nodes, err := sysfs.Nodes(p.host, pci.PCIAddress)
	if err != nil {
		return nil, fmt.Errorf("pci.pci-address: %w", err)
	}
	if pci.VhostNet != "" {
		if pci.VhostNet != vhostNet {
			return nil, fmt.Errorf("pci.vhost-net: invalid value %q: must be %s, the kernel's only such node: %w", pci.VhostNet, vhostNet, errdefs.ErrInvalidArgument)
		}
		vhost, err := sysfs.VhostNet(p.host)
		if err != nil {
			return nil, fmt.Errorf("pci.vhost-net: %w", err)
		}
		nodes = append(nodes, vhost...)
	}
	if names := pci.RDMADevices(); len(names) > 0 {
		rdma, err := sysfs.RDMA(p.host, pci.PCIAddress, names)
		if err != nil {
			return nil, fmt.Errorf("pci.rdma-device: %w", err)
		}
		nodes = append(nodes, rdma...)
	}
	if len(nodes) == 0 {
		v.notes = append(v.notes, "the device is bound to a driver of the kernel: it needs no device node")
	}
	return nodes, nil
}

// vdpaNodes resolves a vDPA device from its parent-device, not from the path in
// device-info. Device-info is untrusted: the device must be
// the one that was allocated, by its name or by the PCI function below it.
func (p *planner) vdpaNodes(a *attachment.Attachment, v *viewEntry) ([]sysfs.Node, error) {
	vdpa := a.Info.VDPA
	if vdpa.Driver == deviceinfo.VDPAVirtio {
		v.notes = append(v.notes, "vdpa with the virtio driver is a network interface: it needs no device node")
		return nil, nil
	}
	dev, err := sysfs.VDPA(p.host, vdpa.ParentDevice)
	if err != nil {
		return nil, fmt.Errorf("vdpa.parent-device: %w", err)
	}
	if dev.Driver != string(vdpa.Driver) {
		return nil, fmt.Errorf("vdpa.driver: found %q, but %s/driver says %q: %w", vdpa.Driver, dev.Dir, dev.Driver, errdefs.ErrConflict)
	}
	if !strings.EqualFold(a.Device, dev.Name) && !strings.EqualFold(a.Device, dev.Address) {
		return nil, fmt.Errorf("vdpa.parent-device: found %q, which belongs to PCI function %q, but the kubelet allocated %q: %w",
			vdpa.ParentDevice, dev.Address, a.Device, errdefs.ErrConflict)
	}
	for _, n := range dev.Nodes {
		v.vdpaNode = n.Path
		if vdpa.Path != n.Path {
			v.notes = append(v.notes, fmt.Sprintf("vdpa.path is %q, and the device's node is %s at this moment", vdpa.Path, n.Path))
		}
	}
	return dev.Nodes, nil
}
