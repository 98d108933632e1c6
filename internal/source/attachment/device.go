// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"slices"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// device identifies a PCI or vDPA device. Several vDPA devices can share a PCI function, so a vDPA
// device is identified by its name.
type device struct {
	vdpa string // as in /sys/bus/vdpa/devices; "" for a PCI function
	pci  string // address, in lower case; "" for a vDPA device without a PCI function
}

// deviceOf returns the device in device-info; ok is false for sockets.
func deviceOf(i *deviceinfo.Info) (d device, ok bool) {
	switch {
	case i == nil:
	case i.Type == deviceinfo.TypePCI:
		return device{pci: canonicalID(i.PCI.PCIAddress)}, true
	case i.Type == deviceinfo.TypeVDPA:
		return device{vdpa: i.VDPA.ParentDevice, pci: canonicalID(i.VDPA.PCIAddress)}, true
	}
	return device{}, false
}

// socketID identifies a socket.
type socketID struct {
	kind deviceinfo.Type
	mode string // mode of vhost-user, role of memif
	path string
}

// socketOf returns the socket in device-info; ok is false for devices.
func socketOf(i *deviceinfo.Info) (s socketID, ok bool) {
	switch {
	case i == nil:
	case i.Type == deviceinfo.TypeVhostUser:
		return socketID{i.Type, string(i.VhostUser.Mode), i.VhostUser.Path}, true
	case i.Type == deviceinfo.TypeMemif:
		return socketID{i.Type, string(i.Memif.Role), i.Memif.Path}, true
	}
	return socketID{}, false
}

// String returns the socket for messages.
func (s socketID) String() string {
	return string(s.kind) + " " + s.mode + " socket " + diag.Quote(s.path)
}

// String returns the device for messages.
func (d device) String() string {
	switch {
	case d.vdpa != "" && d.pci != "":
		return "vDPA device " + d.vdpa + " of PCI function " + d.pci
	case d.vdpa != "":
		return "vDPA device " + d.vdpa
	}
	return "PCI device " + d.pci
}

// sysfsName returns the device's name in sysfs.
func (d device) sysfsName() string {
	if d.vdpa != "" {
		return d.vdpa
	}
	return d.pci
}

// matchesID reports whether a device plugin's ID can identify this device: it is the device's name,
// or the address of its PCI function.
func (d device) matchesID(id string) bool {
	id = canonicalID(id)
	return id != "" && (id == d.vdpa || id == d.pci)
}

// isSame reports whether two descriptions identify one device. A PCI function and a vDPA device on
// it count as one, because a CNI plugin can create the vDPA device.
func (d device) isSame(o device) bool {
	if d.vdpa != "" && o.vdpa != "" {
		return d.vdpa == o.vdpa
	}
	return d.pci == o.pci && d.pci != ""
}

// contradictsID reports whether a device plugin's ID cannot identify this device. Only a PCI
// address can contradict: the plugin chooses the meaning of other IDs.
func (d device) contradictsID(id string) bool {
	return isPCIAddress(id) && d.pci != "" && canonicalID(id) != d.pci
}

// canonicalID returns a PCI address in the kernel's form, and any other ID unchanged.
func canonicalID(id string) string {
	if address, wellFormed := diag.PCIAddress(id); wellFormed {
		return address
	}
	return id
}

// containsID reports whether a list contains a device plugin's ID, in any spelling of its address.
func containsID(ids []string, id string) bool {
	id = canonicalID(id)
	return slices.ContainsFunc(ids, func(s string) bool { return canonicalID(s) == id })
}

// isPCIAddress reports whether s is an address in BDF form, "dddd:BB:DD.f" (Device
// Information Specification, §3.1.3.1). The domain has up to eight digits.
func isPCIAddress(s string) bool {
	_, wellFormed := diag.PCIAddress(s)
	return wellFormed
}
