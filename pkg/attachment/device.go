// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"strings"

	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// device is what tells one PCI or vDPA device from another. Several vDPA devices
// may share a PCI function, so that a vDPA device is known by its name.
type device struct {
	vdpa string // as in /sys/bus/vdpa/devices, "" for a PCI function
	pci  string // address in the kernel's spelling; "" for a vDPA device that hangs below none
}

// deviceOf is the device that device-info describes; ok is false for sockets.
func deviceOf(i *deviceinfo.Info) (d device, ok bool) {
	switch {
	case i == nil:
		return device{}, false
	case i.Type == deviceinfo.TypePCI:
		return device{pci: normal(i.PCI.PCIAddress)}, true
	case i.Type == deviceinfo.TypeVDPA:
		return device{vdpa: i.VDPA.ParentDevice, pci: normal(i.VDPA.PCIAddress)}, true
	}
	return device{}, false
}

// socketID is what tells one socket from another.
type socketID struct {
	kind deviceinfo.Type
	mode string // of vhost-user; of memif the role
	path string
}

// socketOf is the socket that device-info describes; ok is false for devices.
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

// String names the socket for messages.
func (s socketID) String() string { return string(s.kind) + " " + s.mode + " socket " + quote(s.path) }

// String names the device for messages.
func (d device) String() string {
	switch {
	case d.vdpa != "" && d.pci != "":
		return "vDPA device " + d.vdpa + " of PCI function " + d.pci
	case d.vdpa != "":
		return "vDPA device " + d.vdpa
	}
	return "PCI device " + d.pci
}

// name is what sysfs calls the device.
func (d device) name() string {
	if d.vdpa != "" {
		return d.vdpa
	}
	return d.pci
}

// has reports whether a device plugin that knows the device by id can mean this
// one: by its name, or, for want of better, by the PCI function below it.
func (d device) has(id string) bool {
	id = normal(id)
	return id != "" && (id == d.vdpa || id == d.pci)
}

// same reports whether two descriptions are of one device. A PCI function and a
// vDPA device on it are: a CNI plugin may turn the one into the other.
func (d device) same(o device) bool {
	if d.vdpa != "" && o.vdpa != "" {
		return d.vdpa == o.vdpa
	}
	return d.pci == o.pci && d.pci != ""
}

// contradicts reports whether the device cannot be the one that a device plugin
// knows by id. An ID that is no PCI address means what only its plugin knows.
func (d device) contradicts(id string) bool {
	return isPCIAddress(id) && d.pci != "" && normal(id) != d.pci
}

// normal is a PCI address in the kernel's spelling, and any other ID as it is.
func normal(id string) string {
	if isPCIAddress(id) {
		return strings.ToLower(id)
	}
	return id
}

// isPCIAddress reports whether s is an address in BDF form, "dddd:BB:DD.f" (Device
// Information Specification, §3.1.3.1). The domain has up to eight digits.
func isPCIAddress(s string) bool {
	n := len(s)
	if n < 12 || n > 16 || s[n-8] != ':' || s[n-5] != ':' || s[n-2] != '.' {
		return false
	}
	for i := range n {
		if i == n-8 || i == n-5 || i == n-2 {
			continue
		}
		if c := s[i]; !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F') {
			return false
		}
	}
	return s[n-4] <= '1' && s[n-1] <= '7'
}
