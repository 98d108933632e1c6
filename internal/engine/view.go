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

// ReadView returns the devices.json of a running container, or nil.
func ReadView(host hostfs.Root, stateDir, containerID string) []byte {
	data, err := LoadView(host, stateDir, containerID)
	if err != nil {
		return nil
	}
	return data
}

// LoadView is ReadView with the reason why there is no content; errdefs.ErrNotFound for a container without one.
func LoadView(host hostfs.Root, stateDir, containerID string) ([]byte, error) {
	return host.ReadFile(path.Join(edit.ContainerDir(stateDir, containerID), ViewFile), maxView)
}

// viewEntry is one attachment in devices.json.
type viewEntry struct {
	att           *attachment.Attachment // empty for a named socket
	named         string                 // the name of a named socket
	creator       config.Side            // of a socket
	containerPath string                 // of a socket
	ownPath       string                 // the device-info's own path, where it is there too
	vdpaNode      string                 // in the container
	eal           []string               // see setEAL
	note          string                 // what the socket lacks, such as its own path
	notes         []string               // for the item
}

// isSocket reports whether the attachment is a socket.
func (v *viewEntry) isSocket() bool {
	info := v.att.Info
	return v.named != "" || info != nil && (info.Type == deviceinfo.TypeVhostUser || info.Type == deviceinfo.TypeMemif)
}

// addNote adds a note for the container to the attachment.
func (v *viewEntry) addNote(note string) {
	if v.note != "" {
		v.note += "; "
	}
	v.note += note
}

// addToView adds a device to the container's view, once. If a network and
// an annotation bring a device, the network's entry remains.
func (p *planner) addToView(v viewEntry) {
	name := v.device()
	for i := range p.view {
		if have := &p.view[i]; name != "" && have.device() == name {
			if have.att.IfName == "" {
				*have = v
			}
			return
		}
	}
	p.view = append(p.view, v)
}

// inView reports whether the container's view has the device already.
func (p *planner) inView(a *attachment.Attachment) bool {
	v := viewEntry{att: a}
	return v.device() != "" && slices.ContainsFunc(p.view, func(have viewEntry) bool { return have.device() == v.device() })
}

// device identifies a PCI or vDPA device; it is "" for a socket.
func (v *viewEntry) device() string {
	switch info := v.att.Info; {
	case info == nil:
		return ""
	case info.Type == deviceinfo.TypePCI:
		return info.PCI.PCIAddress
	case info.Type == deviceinfo.TypeVDPA:
		return info.VDPA.ParentDevice
	}
	return ""
}

// addView adds devices.json, the mount with it, and the environment.
func (p *planner) addView() error {
	list, err := p.addViewFile()
	if err != nil {
		return err
	}
	origin := edit.Origin{Source: edit.SourceJackfield, Request: "devices.json"}
	env := []edit.Env{{Name: devices.FileVariable, Value: path.Join(ContainerDir, ViewFile)}}
	for i := range list {
		for _, v := range list[i].Variables(p.view[i].names()...) {
			env = append(env, edit.Env{Name: v.Name, Value: v.Value})
		}
	}
	for _, e := range env {
		e.Origin = origin
		if err := p.b.AddEnv(&e); err != nil {
			return err
		}
	}
	m := p.stagedMount(ContainerDir, "", false, origin)
	if !p.opts.Staged() {
		m.Options = []string{"bind", "ro", "rprivate", "nosuid", "nodev", "noexec"}
	}
	return p.b.AddMount(m)
}

// addViewFile adds devices.json and returns what it lists.
func (p *planner) addViewFile() ([]devices.Device, error) {
	list := []devices.Device{}
	prefixes, vdevs := map[string]string{}, map[string]int{}
	for i := range p.view {
		v := &p.view[i]
		v.setEAL(vdevs)
		list = append(list, v.element())
		for _, name := range v.names() {
			prefix := devices.VariablePrefix(name)
			if prefix == devices.SocketPrefix && slices.ContainsFunc(p.view, func(o viewEntry) bool { return o.named != "" }) {
				return nil, fmt.Errorf("interface %q and the container's named sockets would have the same variables, %s_*; rename the interface: %w", name, prefix, errdefs.ErrConflict)
			}
			if other, ok := prefixes[prefix]; ok {
				return nil, fmt.Errorf("%q and %q would have the same variables, %s_*; rename one of these interfaces or claims: %w", other, name, prefix, errdefs.ErrConflict)
			}
			prefixes[prefix] = name
		}
	}
	data, err := encodeView(list)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", ViewFile, err)
	}
	p.staging().Files = append(p.staging().Files, edit.File{Name: ViewFile, Data: data})
	return list, nil
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

// names returns what the attachment's variables are named for: its interface, and its claim and
// request.
func (v *viewEntry) names() (names []string) {
	if v.att.IfName != "" {
		names = append(names, v.att.IfName)
	}
	if v.att.Claimed != nil && v.att.Claimed.Request != "" {
		names = append(names, v.att.Claimed.Name())
	}
	return names
}

// element returns the attachment or named socket as it appears in devices.json.
func (v *viewEntry) element() devices.Device {
	if v.named != "" {
		return devices.Device{Name: "socket:" + v.named, Jackfield: devices.Extension{Socket: v.containerPath, CreatedBy: string(v.creator), OwnPath: v.ownPath, Note: v.note}}
	}
	n := v.interfaceInfo()
	e := devices.Device{
		Name: v.att.Network, Interface: v.att.IfName, IPs: n.IPs, Gateway: n.Gateway, MAC: n.MAC, MTU: n.MTU, DNS: n.DNS,
		Jackfield: devices.Extension{Resource: v.att.Resource, DeviceID: v.att.DeviceID, CreatedBy: string(v.creator), OwnPath: v.ownPath,
			Note: v.note, Queues: n.Queues, Bandwidth: n.Bandwidth, Labels: n.Labels, EAL: v.eal},
	}
	if c := v.att.Claimed; c != nil {
		if e.Name == "" {
			e.Name, e.Jackfield.DeviceID = c.Name(), ""
		}
		e.Jackfield.Claim = &devices.Claim{Name: c.Claim, PodClaim: c.PodClaim, Request: c.Request, Driver: c.Driver, Pool: c.Pool, Device: c.Device}
	}
	if v.att.Info == nil {
		return e
	}
	info := v.att.Info.Clone()
	switch info.Type {
	case deviceinfo.TypeVhostUser:
		info.VhostUser.Path = v.containerPath
	case deviceinfo.TypeMemif:
		info.Memif.Path = v.containerPath
	case deviceinfo.TypeVDPA:
		if v.vdpaNode != "" {
			info.VDPA.Path = v.vdpaNode
		}
	}
	if _, err := attachment.ReadInterfaceInfo(info); err == nil {
		delete(info.Extra, attachment.InterfaceInfoKey)
	}
	e.DeviceInfo = info.AppendJSON(nil)
	return e
}

// interfaceInfo returns what is known about the interface: from device-info and, for a device of a
// claim, from the driver's metadata.
func (v *viewEntry) interfaceInfo() attachment.InterfaceInfo {
	var n attachment.InterfaceInfo
	if v.att.Info != nil {
		n, _ = attachment.ReadInterfaceInfo(v.att.Info) // empty if it cannot be read
		n.RemoveInvalid()
	}
	if c := v.att.Claimed; c != nil {
		if len(n.IPs) == 0 {
			n.IPs = c.IPs
		}
		n.MAC, n.MTU = cmp.Or(n.MAC, c.MAC), cmp.Or(n.MTU, c.MTU)
	}
	return n
}

// setEAL sets the arguments of DPDK's EAL for the attachment (DPDK Getting Started Guide,
// "EAL parameters"; Network Interface Controller Drivers, virtio and memif). A
// path with a comma cannot be written there. vdevs counts the devices of each driver.
func (v *viewEntry) setEAL(vdevs map[string]int) {
	if v.named != "" {
		return
	}
	setVdev := func(driver, args string) {
		n := v.interfaceInfo()
		if n.Queues > 0 && driver == "net_virtio_user" { // memif's queues are the switch's to set
			args += ",queues=" + strconv.Itoa(n.Queues)
		}
		if n.MAC != "" {
			args += ",mac=" + n.MAC
		}
		v.eal = []string{"--vdev=" + driver + strconv.Itoa(vdevs[driver]) + "," + args}
		vdevs[driver]++
	}
	switch info := v.att.Info; {
	case info == nil:
	case info.Type == deviceinfo.TypePCI:
		v.eal = []string{"-a", info.PCI.PCIAddress}
	case info.Type == deviceinfo.TypeVDPA && v.vdpaNode != "":
		setVdev("net_virtio_user", "path="+v.vdpaNode)
	case strings.Contains(v.containerPath, ","):
	case info.Type == deviceinfo.TypeVhostUser && v.creator == config.SideApplication:
		setVdev("net_virtio_user", "path="+v.containerPath+",server=1")
	case info.Type == deviceinfo.TypeVhostUser:
		setVdev("net_virtio_user", "path="+v.containerPath)
	case info.Type == deviceinfo.TypeMemif && info.Memif.Mode == deviceinfo.MemifEthernet:
		role := "client"
		if v.creator == config.SideApplication {
			role = "server"
		}
		socket, abstract := v.containerPath, "no"
		if info.Memif.Abstract() {
			socket, abstract = strings.TrimPrefix(v.containerPath, "@"), "yes"
		}
		setVdev("net_memif", "role="+role+",id=0,socket="+socket+",socket-abstract="+abstract)
	}
}
