// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/source/attachment"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
	"github.com/jackfield/jackfield/pkg/devices"
)

// ViewFile is the name of a container's view of its attachments, in its staging
// directory.
const ViewFile = "devices.json"

// maxView bounds a devices.json that is read, in bytes.
const maxView = 1 << 20

// ReadView returns the devices.json of a running container; errdefs.ErrNotFound for a container without one.
func ReadView(host hostfs.Root, stateDir, containerID string) ([]byte, error) {
	return host.ReadFile(path.Join(edit.ContainerDir(stateDir, containerID), ViewFile), maxView)
}

// viewEntry is one entry of devices.json.
type viewEntry struct {
	element  devices.Device // without the EAL arguments of vdev
	names    []string       // of the interface, and of claim and request; variables are named for them
	address  string         // of a PCI or vDPA device; "" for others
	isSocket bool
	pins     bool // programs that use the device pin memory
	vdev     vdev
}

// vdev is a virtual device of DPDK's EAL. Its name is the driver's and a number, which depends on the other entries.
type vdev struct{ driver, args string }

// placement is the place of a socket or vDPA device in the container.
type placement struct {
	path    string // of the socket or the vDPA device's node
	ownPath string // the path in device-info or configuration, if the socket is also there
	creator config.Side
	note    string // a limitation of the socket, such as a missing ownPath
}

func (p *placement) addNote(note string) {
	if p.note != "" {
		p.note += "; "
	}
	p.note += note
}

// newNamedEntry returns the entry of a named socket.
func newNamedEntry(name string, at placement) *viewEntry {
	return &viewEntry{isSocket: true, element: devices.Device{Name: "socket:" + name,
		Jackfield: devices.Extension{Socket: at.path, CreatedBy: string(at.creator), OwnPath: at.ownPath, Note: at.note}}}
}

// newAttachmentEntry returns the entry of an attachment.
func newAttachmentEntry(a *attachment.Attachment, at placement) *viewEntry {
	n := interfaceInfo(a)
	v := &viewEntry{address: deviceAddress(a.Info), element: devices.Device{
		Name: a.Network, Interface: a.IfName, IPs: n.IPs, Gateway: n.Gateway, MAC: n.MAC, MTU: n.MTU, DNS: n.DNS,
		Jackfield: devices.Extension{Resource: a.Resource, DeviceID: a.DeviceID, CreatedBy: string(at.creator),
			OwnPath: at.ownPath, Note: at.note, Queues: n.Queues, Bandwidth: n.Bandwidth, Labels: n.Labels},
	}}
	e := &v.element
	if a.IfName != "" {
		v.names = append(v.names, a.IfName)
	}
	if c := a.Claimed; c != nil {
		if c.Request != "" {
			v.names = append(v.names, c.Name())
		}
		if e.Name == "" {
			e.Name, e.Jackfield.DeviceID = c.Name(), ""
		}
		e.Jackfield.Claim = claimOf(a)
	}
	if a.Info == nil {
		return v
	}
	info := a.Info.Clone()
	switch info.Type {
	case deviceinfo.TypeVhostUser:
		info.VhostUser.Path, v.isSocket = at.path, true
	case deviceinfo.TypeMemif:
		info.Memif.Path, v.isSocket = at.path, true
	case deviceinfo.TypeVDPA:
		info.VDPA.Path = cmp.Or(at.path, info.VDPA.Path)
	case deviceinfo.TypePCI:
		e.Jackfield.EAL = []string{"-a", info.PCI.PCIAddress}
	}
	if _, err := attachment.ReadInterfaceInfo(info); err == nil {
		delete(info.Extra, attachment.InterfaceInfoKey)
	}
	e.DeviceInfo = info.AppendJSON(nil)
	v.vdev = newVdev(a.Info, at, n)
	return v
}

// claimOf returns the claim of an attachment's device, or nil.
func claimOf(a *attachment.Attachment) *devices.Claim {
	c := a.Claimed
	if c == nil {
		return nil
	}
	return &devices.Claim{Name: c.Claim, PodClaim: c.PodClaim, Request: c.Request, Driver: c.Driver, Pool: c.Pool,
		Device: c.Device}
}

// isSame reports whether the entry is of a device, which has its address or its claim.
func (v *viewEntry) isSame(address string, claim *devices.Claim) bool {
	have := v.element.Jackfield.Claim
	return address != "" && v.address == address || claim != nil && have != nil && *have == *claim
}

// deviceAddress identifies a PCI or vDPA device; it is "" for a socket.
func deviceAddress(info *deviceinfo.Info) string {
	switch {
	case info == nil:
		return ""
	case info.Type == deviceinfo.TypePCI:
		return info.PCI.PCIAddress
	case info.Type == deviceinfo.TypeVDPA:
		return info.VDPA.ParentDevice
	}
	return ""
}

// interfaceInfo returns the data of the interface: from device-info and, for a device of a
// claim, from the driver's metadata.
func interfaceInfo(a *attachment.Attachment) attachment.InterfaceInfo {
	var n attachment.InterfaceInfo
	if a.Info != nil {
		n, _ = attachment.ReadInterfaceInfo(a.Info) // empty if it cannot be read
		n.RemoveInvalid()
	}
	if c := a.Claimed; c != nil {
		if len(n.IPs) == 0 {
			n.IPs = c.IPs
		}
		n.MAC, n.MTU = cmp.Or(n.MAC, c.MAC), cmp.Or(n.MTU, c.MTU)
	}
	return n
}

// newVdev returns the virtual device for a socket or vDPA device (DPDK Getting Started Guide,
// "EAL parameters"; Network Interface Controller Drivers, virtio and memif). A
// path with a comma cannot be written there.
func newVdev(info *deviceinfo.Info, at placement, n attachment.InterfaceInfo) (v vdev) {
	byApplication := at.creator == config.SideApplication
	// DPDK has drivers for these types; its memif driver supports Ethernet only.
	switch {
	case at.path == "", info.Type != deviceinfo.TypeVDPA && strings.Contains(at.path, ","):
		return vdev{}
	case info.Type == deviceinfo.TypeVhostUser && byApplication:
		v = vdev{"net_virtio_user", "path=" + at.path + ",server=1"}
	case info.Type == deviceinfo.TypeVhostUser, info.Type == deviceinfo.TypeVDPA:
		v = vdev{"net_virtio_user", "path=" + at.path}
	case info.Type == deviceinfo.TypeMemif && info.Memif.Mode == deviceinfo.MemifEthernet:
		role, socket, abstract := "client", at.path, "no"
		if byApplication {
			role = "server"
		}
		if info.Memif.Abstract() {
			socket, abstract = strings.TrimPrefix(at.path, "@"), "yes"
		}
		v = vdev{"net_memif", "role=" + role + ",id=0,socket=" + socket + ",socket-abstract=" + abstract}
	default:
		return vdev{}
	}
	if n.Queues > 0 && v.driver == "net_virtio_user" { // the switch sets the queues of memif
		v.args += ",queues=" + strconv.Itoa(n.Queues)
	}
	if n.MAC != "" {
		v.args += ",mac=" + n.MAC
	}
	return v
}

// listDevices returns the elements of devices.json. It numbers the virtual devices of each driver. memlock is the
// container's limit of locked memory.
func listDevices(view []viewEntry, memlock string) []devices.Device {
	list := make([]devices.Device, len(view))
	next := map[string]int{}
	for i := range view {
		list[i] = view[i].element
		if view[i].pins {
			list[i].Jackfield.Memlock = memlock
		}
		if v := view[i].vdev; v.driver != "" {
			list[i].Jackfield.EAL = []string{"--vdev=" + v.driver + strconv.Itoa(next[v.driver]) + "," + v.args}
			next[v.driver]++
		}
	}
	return list
}

// checkVariables returns an error if two entries would have variables of the same name.
func checkVariables(view []viewEntry) error {
	hasNamed := slices.ContainsFunc(view, func(v viewEntry) bool { return v.element.Jackfield.Socket != "" })
	prefixes := map[string]string{}
	for i := range view {
		for _, name := range view[i].names {
			prefix := devices.VariablePrefix(name)
			if prefix == devices.SocketPrefix && hasNamed {
				return fmt.Errorf("interface %q and the container's named sockets would have the same variables, %s_*; "+
					"rename the interface: %w", name, prefix, errdefs.ErrConflict)
			}
			if other, ok := prefixes[prefix]; ok {
				return fmt.Errorf("%q and %q would have the same variables, %s_*; rename one of these interfaces or claims: %w",
					other, name, prefix, errdefs.ErrConflict)
			}
			prefixes[prefix] = name
		}
	}
	return nil
}

// encodeView returns the text of devices.json.
func encodeView(list []devices.Device) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(list)
	return b.Bytes(), err
}
