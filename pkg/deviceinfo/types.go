// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"encoding/json"
	"maps"
	"strings"
)

// Versions of the specification that this package knows (§3.1.2). Any 1.x.y is
// read, with a warning, because a minor version only adds keys; another major
// version is refused.
const (
	Version100 = "1.0.0"
	Version110 = "1.1.0"
	// Version is the one to write.
	Version = Version110
)

// Limits of one device-info map. The specification sets none; these keep a
// hostile file cheap.
const (
	MaxSize  = 64 << 10 // bytes of a file
	MaxDepth = 32       // maps and lists inside each other, the outermost counted
)

// MaxSocketPath is the longest path, in bytes, that a Unix socket address holds
// (sun_path has 108 with the terminating NUL).
const MaxSocketPath = 107

// Type says which kind of device is described (§3.1.1).
type Type string

// The values of "type".
const (
	TypePCI       Type = "pci"
	TypeVDPA      Type = "vdpa"
	TypeVhostUser Type = "vhost-user"
	TypeMemif     Type = "memif"
)

// VDPADriver is the driver a vDPA device is bound to (§3.1.4.2).
type VDPADriver string

// The values of "driver".
const (
	VDPAVhost  VDPADriver = "vhost"
	VDPAVirtio VDPADriver = "virtio"
)

// VhostUserMode says which side creates the socket (§3.1.5.1).
type VhostUserMode string

// The values of "mode" of a vhost-user device.
const (
	// VhostUserClient: the host creates the socket, the application attaches.
	VhostUserClient VhostUserMode = "client"
	// VhostUserServer: the application creates the socket, the host attaches.
	VhostUserServer VhostUserMode = "server"
)

// MemifRole says which side creates the socket (§3.1.6.1).
type MemifRole string

// The values of "role" of a memif device.
const (
	// MemifMaster: the application creates the socket, the host attaches.
	MemifMaster MemifRole = "master"
	// MemifSlave: the host creates the socket, the application attaches.
	MemifSlave MemifRole = "slave"
)

// MemifMode says what travels over a memif device (§3.1.6.3).
type MemifMode string

// The values of "mode" of a memif device. The specification reserves
// "inject-punt" for future use; it is accepted.
const (
	MemifEthernet   MemifMode = "ethernet"
	MemifIP         MemifMode = "ip"
	MemifInjectPunt MemifMode = "inject-punt"
)

// Info is one device-info map (§3.1). The map that Type names is set; maps of
// other types may be there too, and satisfy the specification as well.
type Info struct {
	Type      Type       `json:"type"`
	Version   string     `json:"version"`
	PCI       *PCI       `json:"pci,omitempty"`
	VDPA      *VDPA      `json:"vdpa,omitempty"`
	VhostUser *VhostUser `json:"vhost-user,omitempty"`
	Memif     *Memif     `json:"memif,omitempty"`

	// Extra holds keys the specification does not know, as compact JSON.
	Extra map[string]json.RawMessage `json:"-"`
	// Warnings are findings of [Parse] that do not make the map invalid. They
	// are never written.
	Warnings Diagnostics `json:"-"`
}

// PCI describes a PCI function (§3.1.3). Addresses are in the form of sysfs,
// "dddd:bb:dd.f" in lower case.
type PCI struct {
	PCIAddress   string `json:"pci-address"`
	VhostNet     string `json:"vhost-net,omitempty"`   // path of the vhost-net character device
	RDMADevice   string `json:"rdma-device,omitempty"` // one name, or several with commas; see [PCI.RDMADevices]
	PFPCIAddress string `json:"pf-pci-address,omitempty"`
	// RepresentorDevice is the name of a network device; since version 1.1.0.
	RepresentorDevice string `json:"representor-device,omitempty"`

	Extra map[string]json.RawMessage `json:"-"` // as [Info.Extra]
}

// RDMADevices are the names in "rdma-device", which device plugins in the
// field join with commas when a function has several.
func (p *PCI) RDMADevices() []string {
	if p == nil || p.RDMADevice == "" {
		return nil
	}
	return strings.Split(p.RDMADevice, ",")
}

// VDPA describes a vDPA device (§3.1.4).
type VDPA struct {
	ParentDevice string     `json:"parent-device"` // name below /sys/bus/vdpa/devices
	Driver       VDPADriver `json:"driver"`
	// Path is that of the vhost or virtio device. It is required, but device
	// plugins in the field omit it for the virtio driver, where nothing needs
	// it: then it is "" and a warning tells, unless
	// [ParseOptions.RequireVDPAPath] is set.
	Path         string `json:"path,omitempty"`
	PCIAddress   string `json:"pci-address,omitempty"`
	PFPCIAddress string `json:"pf-pci-address,omitempty"`
	// RepresentorDevice is the name of a network device; since version 1.1.0.
	RepresentorDevice string `json:"representor-device,omitempty"`

	Extra map[string]json.RawMessage `json:"-"` // as [Info.Extra]
}

// VhostUser describes a vhost-user socket (§3.1.5).
type VhostUser struct {
	Mode VhostUserMode `json:"mode"`
	Path string        `json:"path"`

	Extra map[string]json.RawMessage `json:"-"` // as [Info.Extra]
}

// HostCreates reports whether, by the specification, the host creates the
// socket. Some writers in the field mean the opposite.
func (v *VhostUser) HostCreates() bool { return v.Mode == VhostUserClient }

// Memif describes a memif socket (§3.1.6).
type Memif struct {
	Role MemifRole `json:"role"`
	Path string    `json:"path"` // a path, or "@name" for an abstract socket
	Mode MemifMode `json:"mode"`

	Extra map[string]json.RawMessage `json:"-"` // as [Info.Extra]
}

// HostCreates reports whether, by the specification, the host creates the
// socket.
func (m *Memif) HostCreates() bool { return m.Role == MemifSlave }

// Abstract reports whether the socket lives in the network namespace's abstract
// space and has no file.
func (m *Memif) Abstract() bool { return strings.HasPrefix(m.Path, "@") }

// Clone is a copy that shares nothing with i.
func (i *Info) Clone() *Info {
	if i == nil {
		return nil
	}
	c := *i
	c.Extra = cloneExtra(i.Extra)
	c.Warnings = append(Diagnostics(nil), i.Warnings...)
	if i.PCI != nil {
		p := *i.PCI
		p.Extra = cloneExtra(p.Extra)
		c.PCI = &p
	}
	if i.VDPA != nil {
		v := *i.VDPA
		v.Extra = cloneExtra(v.Extra)
		c.VDPA = &v
	}
	if i.VhostUser != nil {
		v := *i.VhostUser
		v.Extra = cloneExtra(v.Extra)
		c.VhostUser = &v
	}
	if i.Memif != nil {
		m := *i.Memif
		m.Extra = cloneExtra(m.Extra)
		c.Memif = &m
	}
	return &c
}

func cloneExtra(m map[string]json.RawMessage) map[string]json.RawMessage {
	c := maps.Clone(m)
	for k, v := range c {
		c[k] = append(json.RawMessage(nil), v...)
	}
	return c
}
