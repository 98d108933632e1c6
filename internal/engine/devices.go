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
	missing, omitted := selectNodes(in.decideNodes(a, found.nodes))
	if in.running && len(missing) > 0 {
		d.item.SetOutcome(Unmanaged, errors.New(deviceDenied))
		return nil
	}
	// Check policy first, so that tenants cannot probe for the devices of others.
	if err := addNodes(in, d, a, missing); err != nil {
		return err
	}
	if !in.running {
		if err := checkIOMMUGroup(in, a, found.nodes); err != nil {
			return &RequestError{File: a.File, Err: err}
		}
	}
	if len(omitted) > 0 {
		d.addNotes(fmt.Sprintf("no rule grants %s, which are VFIO's other interface to the device",
			strings.Join(nodePaths(omitted), " and ")))
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
	d.view.pins = slices.ContainsFunc(found.nodes, func(n sysfs.Node) bool { return n.PinsMemory })
	in.addMemlock(d, a, found.nodes, omitted)
	for _, n := range found.nodes {
		if in.hasNode(n) {
			d.present = append(d.present, edit.Device{Path: n.Path, Type: "c", Major: int64(n.Major), Minor: int64(n.Minor),
				Origin: edit.Origin{Source: edit.Attachment}})
		}
	}
	if found.noDPDK != "" {
		d.view.element.Jackfield.EAL = nil
	}
	return nil
}

// addMemlock raises the limit of locked memory for the nodes of a device that the container has or is granted. A node
// that a device plugin has added has the limit of the rule that would grant it.
func (in *inputs) addMemlock(d *delta, a *attachment.Attachment, nodes []sysfs.Node, omitted []nodeDecision) {
	for _, n := range nodes {
		isSame := func(o nodeDecision) bool { return o.Path == n.Path }
		if in.running || !n.PinsMemory || slices.ContainsFunc(omitted, isSame) {
			continue
		}
		subject := in.subjectFor(a)
		subject.Explanations = new(int)
		if grant, err := in.policy.Device(subject, n.Path); err == nil {
			in.raiseMemlock(d, edit.Origin{Source: edit.Attachment, Request: d.item.Request, File: a.File, Field: n.From,
				Rule: grant.Rule})
		}
	}
}

// nodeDecision is a node of a device, and the decision of policy on it.
type nodeDecision struct {
	sysfs.Node
	present bool // the container has it already
	grant   policy.Grant
	refused bool
}

// decideNodes decides on the nodes of an attachment that the container lacks. A running container is granted none.
func (in *inputs) decideNodes(a *attachment.Attachment, nodes []sysfs.Node) []nodeDecision {
	subject := in.subjectFor(a)
	subject.Explanations = new(int) // addNodes explains the refusals that are reported
	decided := make([]nodeDecision, len(nodes))
	for i, n := range nodes {
		decided[i] = nodeDecision{Node: n, present: in.hasNode(n), refused: in.running}
		if !decided[i].present && !in.running {
			var err error
			decided[i].grant, err = in.policy.Device(subject, n.Path)
			decided[i].refused = err != nil
		}
	}
	return decided
}

func nodePaths(nodes []nodeDecision) []string {
	paths := make([]string, len(nodes))
	for i, n := range nodes {
		paths[i] = n.Path
	}
	return paths
}

// addNodes adds nodes of a device, if policy grants all of them.
func addNodes(in *inputs, d *delta, a *attachment.Attachment, nodes []nodeDecision) error {
	if refused := slices.DeleteFunc(slices.Clone(nodes),
		func(n nodeDecision) bool { return !n.refused }); len(refused) > 0 {
		// A rule that grants a node of this device and not the others is a mistake, and the container is refused: see
		// resolveAttachment. A grant of a node that all devices share is none for this device.
		for _, n := range nodes {
			if !n.Shared {
				d.item.Rule = cmp.Or(d.item.Rule, n.grant.Rule)
			}
		}
		return in.policy.RefuseDevices(in.subjectFor(a), nodePaths(refused))
	}
	for i := range nodes {
		if err := addNode(in, d, a, &nodes[i]); err != nil {
			return err
		}
	}
	return nil
}

// addNode adds one node of a device that policy grants.
func addNode(in *inputs, d *delta, a *attachment.Attachment, n *nodeDecision) error {
	if n.grant.Audited {
		n.grant, _ = in.policy.Device(in.subjectFor(a), n.Path) // with the explanation
	}
	d.item.noteGrant(n.grant)
	d.item.Rule = cmp.Or(d.item.Rule, n.grant.Rule)
	d.item.Outcome = Injected // also if another device brought the node
	origin := edit.Origin{Source: edit.Attachment, Request: d.item.Request, File: a.File, Field: n.From,
		Rule: n.grant.Rule}
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
