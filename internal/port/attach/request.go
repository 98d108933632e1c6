// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/name"
	"github.com/jackfield/jackfield/internal/base/quantity"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/host/sysfs"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// The request is the part of a network's configuration that both adapters share: the device, by the
// keys of the device-info map of its type (Device Information Specification, §3.1), and the port on
// a vswitch. Its errors name keys through Attachment.Source, because the adapters spell and locate
// keys differently.
//
// Device is the requested device of an attachment.
type Device struct {
	Kind  deviceinfo.Type
	Field map[string]string
}

// DeviceKeys are the keys of each type's map.
var DeviceKeys = map[deviceinfo.Type][]string{
	deviceinfo.TypePCI: {"pci-address", "vhost-net", "rdma-device", "pf-pci-address", "representor-device"},
	deviceinfo.TypeVDPA: {"parent-device", "driver", "path", "pci-address", "pf-pci-address",
		"representor-device"},
	deviceinfo.TypeVhostUser: {"mode", "path"},
	deviceinfo.TypeMemif:     {"role", "path", "mode"},
}

// deviceValues lists the permitted values of the keys that have a fixed set.
var deviceValues = map[deviceinfo.Type]map[string][]string{
	deviceinfo.TypeVhostUser: {"mode": {"server", "client"}},
	deviceinfo.TypeMemif:     {"role": {"master", "slave"}, "mode": {"ethernet", "ip", "inject-punt"}},
	deviceinfo.TypeVDPA:      {"driver": {"vhost", "virtio"}},
}

// CheckDevice checks the device against the specification, without reading the host. It rewrites
// PCI addresses to their canonical form.
func (t *Attachment) CheckDevice() error {
	d := &t.Device
	for _, key := range DeviceKeys[d.Kind] {
		values, hasValues := deviceValues[d.Kind][key]
		s := d.Field[key]
		if !hasValues || s == "" {
			continue // completeSocket reads it from the device plugin's device-info
		}
		if !slices.Contains(values, s) {
			return t.Invalid("device."+key, diag.Quote(s), strings.Join(values, " or "))
		}
	}
	if d.IsSocket() {
		return t.checkSocketPath()
	}
	for _, key := range []string{"pci-address", "pf-pci-address"} {
		if s := d.Field[key]; s != "" {
			address, err := sysfs.ParseAddress(s)
			if err != nil {
				return t.Invalid("device."+key, diag.Quote(s), "a PCI address, dddd:BB:DD.f")
			}
			d.Field[key] = address
		}
	}
	return nil
}

// completeSocket copies missing fields from described, the device plugin's device-info, which was
// read from file. That device-info describes the allocated port, so a contradicting configuration
// is an error. planAddSocket compares the path.
func (a *addition) completeSocket(file string, described *deviceinfo.Info) error {
	d := &a.Device
	describedFields := identityFields(described)
	for _, key := range DeviceKeys[d.Kind] {
		if key == "path" {
			continue
		}
		configured, allocated := d.Field[key], describedFields[key]
		switch {
		case configured == "":
			d.Field[key] = allocated
		case allocated != "" && configured != allocated:
			return a.contradiction(key, configured, allocated, file, string(d.Kind)+"."+key)
		}
		if d.Kind == deviceinfo.TypeMemif && key == "mode" && d.Field[key] == "" {
			d.Field[key] = string(deviceinfo.MemifEthernet)
		}
		if d.Field[key] == "" {
			return a.Invalid("device."+key, `""`, strings.Join(deviceValues[d.Kind][key], " or "))
		}
	}
	return nil
}

// contradiction returns the error for a configuration that contradicts the device plugin's device-info.
func (a *addition) contradiction(key, configured, allocated, file, field string) error {
	return a.Invalid("device."+key, diag.Quote(configured), fmt.Sprintf(
		`%s, which the device plugin's device-info has for the allocated device in %s of %q: `+
			`remove device.%s from the configuration, or resourceName from the network's definition`,
		diag.Quote(allocated), field, file, key))
}

// IsSocket reports whether the device is a UNIX socket of a userspace interface.
func (d *Device) IsSocket() bool {
	return d.Kind == deviceinfo.TypeVhostUser || d.Kind == deviceinfo.TypeMemif
}

// hostCreates reports whether the host creates the socket.
func (d *Device) hostCreates() bool {
	return d.Kind == deviceinfo.TypeVhostUser && d.Field["mode"] == string(deviceinfo.VhostUserClient) ||
		d.Kind == deviceinfo.TypeMemif && d.Field["role"] == string(deviceinfo.MemifSlave)
}

// isCreatorKnown reports whether the configuration decides whether host or application creates the
// socket.
func (d *Device) isCreatorKnown() bool {
	return d.Field["mode"] != "" && d.Kind == deviceinfo.TypeVhostUser || d.Field["role"] != ""
}

func (d *Device) isAbstract() bool {
	return d.Kind == deviceinfo.TypeMemif && strings.HasPrefix(d.Field["path"], "@")
}

// checkSocketPath checks the path of a socket. It must be a file name in the attachment's
// directory, an abstract name of a memif socket, or, if the host creates the socket, an absolute
// path.
func (t *Attachment) checkSocketPath() error {
	d := &t.Device
	p := d.Field["path"]
	found := diag.Quote(p)
	switch {
	case p == "":
	case d.isAbstract():
		if len(p) < 2 || len(p) > hostfs.MaxSocketPath || strings.IndexByte(p, 0) >= 0 {
			return t.Invalid("device.path", found, `"@" and a name, 107 bytes at most`)
		}
	case path.IsAbs(p):
		if d.isCreatorKnown() && !d.hostCreates() {
			return t.Invalid("device.path", found,
				"a file name: if the application creates the socket, this plugin creates a directory for it")
		}
		if path.Clean(p) != p {
			return t.Invalid("device.path", found,
				"a path without //, /./, /../ and without / at the end, which is "+diag.Quote(path.Clean(p)))
		}
	case name.CheckFile(p) != nil:
		return t.Invalid("device.path", found, `a file name without "/" that does not start with "."`)
	}
	return nil
}

// PortRequest is the network's request for a port on a vswitch. For zero values the node's
// configuration has a default, and otherwise the vswitch.
type PortRequest struct {
	Vswitch string // name in the node's configuration; "" for no port
	Bridge  string
	MTU     int
	VLAN    int
	Queues  int
	Rate    uint64 // bits a second
}

// configDir is the directory below which configFile must be.
const configDir = "/etc"

// portBounds are the smallest and the largest value of each numeric key of a port.
var portBounds = map[string][2]int{"mtu": {68, 65535}, "vlan": {1, 4094}, "queues": {1, 256}}

// SetValue sets the key mtu, vlan, queues, rate, timeout, configFile or socketDirSize from its
// text. If the text is invalid, it returns the rule as a noun phrase for "must be …".
func (t *Attachment) SetValue(key, text string) (rule string) {
	p := &t.Port
	// portBounds has the limits of the numeric keys, for which the last case stands.
	switch key {
	case "configFile":
		if hostfs.CheckPath(text) != nil || path.Clean(text) != text || !strings.HasPrefix(text, configDir+"/") {
			return "a clean path of a file below " + configDir
		}
		t.ConfigFile = text
	case "socketDirSize":
		size, ok := quantity.ParseSize(text)
		if !ok {
			return strings.TrimPrefix(quantity.Rule, "must be ")
		}
		t.SocketDirSize = size
	case "rate":
		rate, ok := quantity.ParseRate(text)
		if !ok {
			return strings.TrimPrefix(quantity.RateRule, "must be ")
		}
		p.Rate = rate
	case "timeout":
		d, err := time.ParseDuration(text)
		if err != nil || d < MinTimeout || d > MaxTimeout {
			return fmt.Sprintf("a duration from %v to %v, such as \"10s\"", MinTimeout, MaxTimeout)
		}
		t.Timeout = d
	default:
		bounds := portBounds[key]
		n, err := strconv.Atoi(text)
		if err != nil || n < bounds[0] || n > bounds[1] {
			return fmt.Sprintf("a number from %d to %d", bounds[0], bounds[1])
		}
		*map[string]*int{"mtu": &p.MTU, "vlan": &p.VLAN, "queues": &p.Queues}[key] = n
	}
	return ""
}

// CheckPort checks the combination of the port's keys with each other and with the device.
func (t *Attachment) CheckPort() error {
	p := &t.Port
	if p.Vswitch == "" {
		for _, f := range []struct {
			key   string
			isSet bool
		}{
			{"bridge", p.Bridge != ""}, {"mtu", p.MTU != 0}, {"vlan", p.VLAN != 0}, {"queues", p.Queues != 0},
			{"rate", p.Rate != 0},
		} {
			if f.isSet {
				return t.Invalid(f.key, t.Source.Value(f.key),
					"the key only together with vswitch, the name of a vswitch in the node's configuration")
			}
		}
		return nil
	}
	switch d := &t.Device; {
	case !d.IsSocket():
		return t.Unsupported("a port of a vswitch has a socket: device.type vhost-user or memif", "vswitch")
	case strings.ContainsAny(d.Field["path"], "/@"):
		return t.Invalid("device.path", diag.Quote(d.Field["path"]),
			"a file name together with vswitch: the port's socket is in a directory of the attachment")
	case d.Kind == deviceinfo.TypeMemif && d.Field["mode"] != "" && d.Field["mode"] != string(deviceinfo.MemifEthernet):
		return t.Invalid("device.mode", diag.Quote(d.Field["mode"]), "ethernet together with vswitch")
	}
	return nil
}
