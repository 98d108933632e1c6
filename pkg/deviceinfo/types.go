// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// Version is the version of the specification to write (§3.1.2). Any 1.x.y is read; another
// version than 1.0.0 and 1.1.0 with a warning, because a minor version only adds keys.
// Another major version is refused.
const Version = "1.1.0"

// version100 is the earlier version, which has no "representor-device".
const version100 = "1.0.0"

// MaxSize bounds a device-info file, in bytes. The specification has no limit; this one
// bounds the cost of a hostile file. NPWG implementations copy device-info to an annotation of the
// pod, and Kubernetes allows 256 KiB for all annotations of an object.
const MaxSize = 256 << 10

// maxSocketPath is the length in bytes of the longest path that a Unix socket address holds
// (sun_path has 108 bytes, with the terminating NUL).
const maxSocketPath = hostfs.MaxSocketPath

// Type is the kind of device (§3.1.1).
type Type string

// The values of "type".
const (
	TypePCI       Type = "pci"
	TypeVDPA      Type = "vdpa"
	TypeVhostUser Type = "vhost-user"
	TypeMemif     Type = "memif"
)

// VDPADriver is the driver of a vDPA device (§3.1.4.2).
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

// MemifMode is the kind of packets of a memif device (§3.1.6.3).
type MemifMode string

// The values of "mode" of a memif device. The specification reserves
// "inject-punt" for future use; it is accepted.
const (
	MemifEthernet   MemifMode = "ethernet"
	MemifIP         MemifMode = "ip"
	MemifInjectPunt MemifMode = "inject-punt"
)

// Info is one device-info map (§3.1). The map that Type names is set. Maps of other types
// are optional, and satisfy the specification as well.
type Info struct {
	Type      Type       `json:"type"`
	Version   string     `json:"version"`
	PCI       *PCI       `json:"pci,omitempty"`
	VDPA      *VDPA      `json:"vdpa,omitempty"`
	VhostUser *VhostUser `json:"vhost-user,omitempty"`
	Memif     *Memif     `json:"memif,omitempty"`

	// Extra holds keys the specification does not know, as compact JSON.
	Extra map[string]json.RawMessage `json:"-"`
	// Warnings are diagnostics of [Parse] that do not make the map invalid. They are
	// never written.
	Warnings FieldErrors `json:"-"`
}

// PCI describes a PCI function (§3.1.3). Addresses have the form "dddd:bb:dd.f", in lower
// case.
type PCI struct {
	PCIAddress   string `json:"pci-address"`
	VhostNet     string `json:"vhost-net,omitempty"`   // path of the vhost-net character device
	RDMADevice   string `json:"rdma-device,omitempty"` // one name, or several separated by commas; see [PCI.RDMADevices]
	PFPCIAddress string `json:"pf-pci-address,omitempty"`
	// RepresentorDevice is the name of a network device. Version 1.1.0 added the key.
	RepresentorDevice string `json:"representor-device,omitempty"`

	Extra map[string]json.RawMessage `json:"-"` // as [Info.Extra]
}

// RDMADevices returns the names in "rdma-device". Device plugins separate them by commas if
// a function has several RDMA devices.
func (p *PCI) RDMADevices() []string {
	if p == nil || p.RDMADevice == "" {
		return nil
	}
	return strings.Split(p.RDMADevice, ",")
}

// VDPA describes a vDPA device (§3.1.4).
type VDPA struct {
	ParentDevice string     `json:"parent-device"` // name in /sys/bus/vdpa/devices
	Driver       VDPADriver `json:"driver"`
	// Path is the path of the vhost or virtio device. It is required, but device plugins omit
	// it for the virtio driver, which does not use it. Then it is "", with a warning,
	// except in [DevicePluginDir.Save], which requires it.
	Path         string `json:"path,omitempty"`
	PCIAddress   string `json:"pci-address,omitempty"`
	PFPCIAddress string `json:"pf-pci-address,omitempty"`
	// RepresentorDevice is the name of a network device. Version 1.1.0 added the key.
	RepresentorDevice string `json:"representor-device,omitempty"`

	Extra map[string]json.RawMessage `json:"-"` // as [Info.Extra]
}

// VhostUser describes a vhost-user socket (§3.1.5).
type VhostUser struct {
	Mode VhostUserMode `json:"mode"`
	Path string        `json:"path"`

	Extra map[string]json.RawMessage `json:"-"` // as [Info.Extra]
}

// HostCreates reports whether the host creates the socket according to the specification.
// Some writers use the opposite meaning.
func (v *VhostUser) HostCreates() bool { return v.Mode == VhostUserClient }

// Memif describes a memif socket (§3.1.6).
type Memif struct {
	Role MemifRole `json:"role"`
	Path string    `json:"path"` // a path, or "@name" for an abstract socket
	Mode MemifMode `json:"mode"`

	Extra map[string]json.RawMessage `json:"-"` // as [Info.Extra]
}

// HostCreates reports whether the host creates the socket according to the specification.
func (m *Memif) HostCreates() bool { return m.Role == MemifSlave }

// Abstract reports whether the socket has an abstract address, in the network namespace,
// and no file.
func (m *Memif) Abstract() bool { return strings.HasPrefix(m.Path, "@") }

// Clone returns a deep copy.
func (i *Info) Clone() *Info {
	if i == nil {
		return nil
	}
	c := *i
	c.Extra, c.Warnings = cloneExtra(i.Extra), slices.Clone(i.Warnings)
	c.PCI = cloneMap(i.PCI, func(p *PCI) *map[string]json.RawMessage { return &p.Extra })
	c.VDPA = cloneMap(i.VDPA, func(v *VDPA) *map[string]json.RawMessage { return &v.Extra })
	c.VhostUser = cloneMap(i.VhostUser, func(v *VhostUser) *map[string]json.RawMessage { return &v.Extra })
	c.Memif = cloneMap(i.Memif, func(m *Memif) *map[string]json.RawMessage { return &m.Extra })
	return &c
}

// cloneMap copies the map of one type with its unknown keys.
func cloneMap[T any](m *T, extra func(*T) *map[string]json.RawMessage) *T {
	if m == nil {
		return nil
	}
	c := *m
	*extra(&c) = cloneExtra(*extra(&c))
	return &c
}

func cloneExtra(m map[string]json.RawMessage) map[string]json.RawMessage {
	c := maps.Clone(m)
	for k, v := range c {
		c[k] = slices.Clone(v)
	}
	return c
}
