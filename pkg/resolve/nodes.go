// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"fmt"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/attachment"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
	"github.com/jackfield/jackfield/pkg/sysfs"
)

// vhostNet is the character device of the kernel's vhost-net.
const vhostNet = "/dev/vhost-net"

// nodes looks up the device nodes of a PCI or vDPA attachment, as sysfs has
// them at this moment (design: "What each type becomes").
func (p *planner) nodes(a *attachment.Attachment, v *viewEntry) ([]sysfs.Node, error) {
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
			return nil, fmt.Errorf("pci.vhost-net: found %q, want %s, the kernel's only such node: %w", pci.VhostNet, vhostNet, errdefs.ErrInvalidArgument)
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

// vdpaNodes resolves a vDPA device from its parent-device; the path that
// device-info gives can only agree. Device-info is untrusted: the device must be
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
		return nil, fmt.Errorf("vdpa.parent-device: found %q, which hangs below PCI function %q, but the kubelet allocated %q: %w",
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
