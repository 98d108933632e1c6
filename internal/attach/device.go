// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/jackfield/jackfield/pkg/deviceinfo"
	"github.com/jackfield/jackfield/pkg/sysfs"
)

// Device is the device of an attachment: the keys of the device-info map of its type (Device Information
// Specification, §3.1).
type Device struct {
	Kind  deviceinfo.Type
	Field map[string]string
}

// DeviceKeys are the keys of each type's map.
var DeviceKeys = map[deviceinfo.Type][]string{
	deviceinfo.TypePCI:       {"pci-address", "vhost-net", "rdma-device", "pf-pci-address", "representor-device"},
	deviceinfo.TypeVDPA:      {"parent-device", "driver", "path", "pci-address", "pf-pci-address", "representor-device"},
	deviceinfo.TypeVhostUser: {"mode", "path"},
	deviceinfo.TypeMemif:     {"role", "path", "mode"},
}

// deviceValues are the values of keys that have a fixed set of values.
var deviceValues = map[deviceinfo.Type]map[string][]string{
	deviceinfo.TypeVhostUser: {"mode": {"server", "client"}},
	deviceinfo.TypeMemif:     {"role": {"master", "slave"}, "mode": {"ethernet", "ip", "inject-punt"}},
	deviceinfo.TypeVDPA:      {"driver": {"vhost", "virtio"}},
}

// CheckDevice checks the device against the specification, as far as the configuration alone allows. It brings
// addresses into their canonical form.
func CheckDevice(host *Host, attachment *Attachment) error {
	j := &job{Attachment: attachment, Host: host}
	d := &j.Device
	for _, key := range DeviceKeys[d.Kind] {
		values, chooses := deviceValues[d.Kind][key]
		s := d.Field[key]
		if !chooses || s == "" {
			continue // completeSocket takes it from the device plugin's device-info
		}
		if !slices.Contains(values, s) {
			return j.invalid("device."+key, Quote(s), strings.Join(values, " or "))
		}
	}
	if d.IsSocket() {
		return j.checkSocketPath()
	}
	for _, key := range []string{"pci-address", "pf-pci-address"} {
		if s := d.Field[key]; s != "" {
			address, err := sysfs.ParseAddress(s)
			if err != nil {
				return j.invalid("device."+key, Quote(s), "a PCI address, dddd:BB:DD.f")
			}
			d.Field[key] = address
		}
	}
	return nil
}

// identityFields returns the fields of a device-info that identify the device, by the keys of the configuration.
func identityFields(info *deviceinfo.Info) map[string]string {
	switch {
	case info == nil:
		return nil
	case info.Type == deviceinfo.TypeVhostUser:
		return map[string]string{"type": string(info.Type), "mode": string(info.VhostUser.Mode), "path": info.VhostUser.Path}
	case info.Type == deviceinfo.TypeMemif:
		return map[string]string{"type": string(info.Type), "role": string(info.Memif.Role), "path": info.Memif.Path, "mode": string(info.Memif.Mode)}
	case info.Type == deviceinfo.TypeVDPA:
		return map[string]string{"type": string(info.Type), "parent-device": info.VDPA.ParentDevice, "driver": string(info.VDPA.Driver)}
	}
	return map[string]string{"type": string(info.Type), "pci-address": info.PCI.PCIAddress}
}

// SocketPath returns the path of the socket in a device-info, "" for a device or nil.
func SocketPath(info *deviceinfo.Info) string { return identityFields(info)["path"] }

// completeSocket takes missing fields from the device plugin's device-info described, of which file is a copy.
// That device-info describes the allocated port, so a contradicting configuration is an error.
// planAddSocket compares the path.
func (j *job) completeSocket(file string, described *deviceinfo.Info) error {
	d := &j.Device
	if described != nil && described.Type != d.Kind {
		return j.contradiction("type", string(d.Kind), string(described.Type), file, "type")
	}
	says := identityFields(described)
	for _, key := range DeviceKeys[d.Kind] {
		if key == "path" {
			continue
		}
		have, want := d.Field[key], says[key]
		switch {
		case have == "":
			d.Field[key] = want
		case want != "" && have != want:
			return j.contradiction(key, have, want, file, string(d.Kind)+"."+key)
		}
		if d.Kind == deviceinfo.TypeMemif && key == "mode" && d.Field[key] == "" {
			d.Field[key] = string(deviceinfo.MemifEthernet)
		}
		if d.Field[key] == "" {
			return j.invalid("device."+key, `""`, strings.Join(deviceValues[d.Kind][key], " or "))
		}
	}
	return nil
}

// contradiction returns the error for a configuration that contradicts the device plugin's device-info.
func (j *job) contradiction(key, have, want, file, field string) error {
	return j.invalid("device."+key, Quote(have), fmt.Sprintf(`%s, which the device plugin's device-info has for the allocated device in %s of %q: `+
		`remove device.%s from the configuration, or resourceName from the network's definition`, Quote(want), field, file, key))
}

func (d *Device) IsSocket() bool {
	return d.Kind == deviceinfo.TypeVhostUser || d.Kind == deviceinfo.TypeMemif
}

// hostCreates reports whether the host creates the socket.
func (d *Device) hostCreates() bool {
	return d.Kind == deviceinfo.TypeVhostUser && d.Field["mode"] == string(deviceinfo.VhostUserClient) ||
		d.Kind == deviceinfo.TypeMemif && d.Field["role"] == string(deviceinfo.MemifSlave)
}

// isCreatorKnown reports whether the configuration says who creates the socket.
func (d *Device) isCreatorKnown() bool {
	return d.Field["mode"] != "" && d.Kind == deviceinfo.TypeVhostUser || d.Field["role"] != ""
}

func (d *Device) isAbstract() bool {
	return d.Kind == deviceinfo.TypeMemif && strings.HasPrefix(d.Field["path"], "@")
}

// checkSocketPath checks the path of a socket: a file name in the attachment's directory, an abstract name of
// a memif socket, or, if the host creates the socket, an absolute path.
func (j *job) checkSocketPath() error {
	d := &j.Device
	p := d.Field["path"]
	found := Quote(p)
	switch {
	case p == "":
	case d.isAbstract():
		if len(p) < 2 || len(p) > maxSocketPath || strings.IndexByte(p, 0) >= 0 {
			return j.invalid("device.path", found, `"@" and a name, 107 bytes at most`)
		}
	case path.IsAbs(p):
		if d.isCreatorKnown() && !d.hostCreates() {
			return j.invalid("device.path", found, "a file name: if the application creates the socket, this plugin creates a directory for it")
		}
		if path.Clean(p) != p {
			return j.invalid("device.path", found, "a clean path")
		}
	case deviceinfo.CheckFileName(p) != nil:
		return j.invalid("device.path", found, `a file name without "/" that does not start with "."`)
	}
	return nil
}
