// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"path"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

const vdpaDevices = "/sys/bus/vdpa/devices"

// The drivers of the vDPA bus, as device-info spells them (Device Information
// Specification 3.1.4.2).
const (
	VhostVDPA  = "vhost"
	VirtioVDPA = "virtio"
)

// VDPADevice describes one vDPA device.
type VDPADevice struct {
	Name   string // as listed in /sys/bus/vdpa/devices
	Dir    string // /sys/bus/vdpa/devices/<name>
	Driver string // VhostVDPA or VirtioVDPA
	// Address is the address of the device's PCI function, or of the parent function of a
	// scalable function. It is "" for a software device.
	Address string
	// Nodes holds the device's /dev/vhost-vdpa-<N>. It is empty under the virtio
	// driver, where the device is a network interface.
	Nodes []Node
}

// VDPA reads one vDPA device and its node. The name is device-info's
// parent-device (Device Information Specification 3.1.4.1). A device without a
// driver is ErrFailedPrecondition.
func VDPA(host hostfs.Root, name string) (VDPADevice, error) {
	l := lookup{host, "find vhost-vdpa node of vDPA device", name}
	if err := checkName(name); err != nil {
		return VDPADevice{}, l.newError("", err, "", "vDPA %v", err)
	}
	dev := VDPADevice{Name: name, Dir: path.Join(vdpaDevices, name)}
	real, err := l.host.Resolve(dev.Dir)
	if err != nil {
		return VDPADevice{}, l.wrapError(dev.Dir, err, "this host has no such device; vdpa dev show lists its devices")
	}
	dev.Address = lastPCIAddress(real)
	if err := l.readVDPADriver(&dev); err != nil {
		return VDPADevice{}, err
	}
	if dev.Driver == VirtioVDPA {
		return dev, nil
	}
	entries, err := l.listDir(dev.Dir, hasNumber("vhost-vdpa-"))
	if err != nil {
		return VDPADevice{}, err
	}
	if len(entries) != 1 {
		return VDPADevice{}, l.newError(dev.Dir, errdefs.ErrNotFound, "bind it to vhost_vdpa again",
			"it holds %d vhost-vdpa-<N> entries instead of one", len(entries))
	}
	from := path.Join(dev.Dir, entries[0])
	n, err := l.statNode("/dev/"+entries[0], from, path.Join(from, "dev"), true)
	if err != nil {
		return VDPADevice{}, err
	}
	n.PinsMemory = true
	dev.Nodes = []Node{n}
	return dev, nil
}

func (l lookup) readVDPADriver(dev *VDPADevice) error {
	file := path.Join(dev.Dir, "driver")
	target, err := l.readLink(file)
	if err != nil {
		return err
	}
	const hint = "bind it to vhost_vdpa or virtio_vdpa"
	switch driver := path.Base(target); driver {
	case ".":
		return l.newError(file, errdefs.ErrFailedPrecondition, hint, "the device is bound to no driver")
	case "vhost_vdpa":
		dev.Driver = VhostVDPA
	case "virtio_vdpa":
		dev.Driver = VirtioVDPA
	default:
		return l.newError(file, errdefs.ErrFailedPrecondition, hint, "the device is bound to driver %q", driver)
	}
	return nil
}

// lastPCIAddress returns the last PCI address in a canonical sysfs path, or "".
func lastPCIAddress(real string) string {
	for real != "/" && real != "." {
		if address, err := ParseAddress(path.Base(real)); err == nil && strings.HasPrefix(real, "/sys/devices/") {
			return address
		}
		real = path.Dir(real)
	}
	return ""
}
