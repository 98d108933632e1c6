// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/attachment"
	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
	"github.com/jackfield/jackfield/pkg/edits"
	"github.com/jackfield/jackfield/pkg/staging"
)

// ViewFile is the name of a container's view of its attachments, in its staging
// directory.
const ViewFile = "devices.json"

const envFile = "JACKFIELD_DEVICES_FILE"

// viewEntry is what the container is told of one attachment.
type viewEntry struct {
	att      *attachment.Attachment
	creator  config.Side // of a socket
	socket   string      // in the container
	ownPath  string      // the device-info's own path, where it is there too
	vdpaNode string      // in the container
	note     string      // what the socket lacks, such as its own path
	notes    []string
}

// addNote adds to what the container is told of the attachment.
func (v *viewEntry) addNote(note string) {
	if v.note != "" {
		v.note += "; "
	}
	v.note += note
}

// show adds a device to the container's view, once: a device that a network and
// an annotation bring is the network's.
func (p *planner) show(v viewEntry) {
	name := v.device()
	for i := range p.view {
		if have := &p.view[i]; have.device() == name {
			if have.att.IfName == "" {
				*have = v
			}
			return
		}
	}
	p.view = append(p.view, v)
}

// shown reports whether the container's view has the device already.
func (p *planner) shown(a *attachment.Attachment) bool {
	v := viewEntry{att: a}
	return v.device() != "" && slices.ContainsFunc(p.view, func(have viewEntry) bool { return have.device() == v.device() })
}

// device tells a PCI or vDPA device from another; it is "" for a socket.
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

// addView adds devices.json, the mount that carries it, and the environment.
// Without an attachment there is none of it, unless one may come later.
func (p *planner) addView() error {
	if len(p.view) == 0 && !p.running && !p.awaits {
		return nil
	}
	origin := edits.Origin{Source: edits.View, Request: "the container's view of its devices"}
	data := append(make([]byte, 0, 768*len(p.view)), '[')
	p.b.RoomForEnv(1 + 4*len(p.view))
	prefixes := map[string]string{}
	vdevs := map[string]int{}
	if err := p.env(envFile, path.Join(ContainerDir, ViewFile), origin); err != nil {
		return err
	}
	for i := range p.view {
		v := &p.view[i]
		eal := v.eal(vdevs)
		data = v.appendElement(data, eal)
		if v.att.IfName == "" {
			continue
		}
		prefix := envPrefix(v.att.IfName)
		if other, ok := prefixes[prefix]; ok {
			return fmt.Errorf("interfaces %q and %q would have the same variables, %s_*; rename one of them: %w", other, v.att.IfName, prefix, errdefs.ErrConflict)
		}
		prefixes[prefix] = v.att.IfName
		for _, kv := range []struct{ name, value string }{
			{"_TYPE", string(v.att.Info.Type)}, {"_SOCKET", v.socket}, {"_PCI", pciAddress(v.att.Info)}, {"_EAL", words(eal)},
		} {
			if kv.value == "" {
				continue
			}
			if err := p.env(prefix+kv.name, kv.value, origin); err != nil {
				return err
			}
		}
	}
	p.staging().Files = append(p.staging().Files, staging.File{Name: ViewFile, Data: append(data, "\n]\n"...)})
	if p.staged() {
		return p.b.AddMount(p.stagedMount(ContainerDir, "", false, origin))
	}
	return p.b.AddMount(&edits.Mount{
		Destination: ContainerDir, Type: "bind", Origin: origin,
		Source:  p.host.Path(staging.ContainerDir(p.cfg.StateDir, p.req.ContainerID)),
		Options: []string{"bind", "ro", "rprivate", "nosuid", "nodev", "noexec"},
	})
}

// words are arguments for whoever splits them at spaces; "" where one has a space
// itself: devices.json has them one by one.
func words(args []string) string {
	for _, a := range args {
		if strings.ContainsRune(a, ' ') {
			return ""
		}
	}
	return strings.Join(args, " ")
}

func (p *planner) env(name, value string, origin edits.Origin) error {
	return p.b.AddEnv(&edits.Env{Name: name, Value: value, Origin: origin})
}

// appendElement appends the entry of devices.json, on a line of its own. Its first
// keys are those of the network-status annotation (Device Information
// Specification, §6), so that what reads the one can read the other; the paths in
// device-info are those in the container.
func (v *viewEntry) appendElement(data []byte, eal []string) []byte {
	info := v.att.Info.Clone()
	switch info.Type {
	case deviceinfo.TypeVhostUser:
		info.VhostUser.Path = v.socket
	case deviceinfo.TypeMemif:
		info.Memif.Path = v.socket
	case deviceinfo.TypeVDPA:
		if v.vdpaNode != "" {
			info.VDPA.Path = v.vdpaNode
		}
	}
	if len(data) > 1 {
		data = append(data, ',')
	}
	data = appendString(append(data, "\n  {\"name\": "...), v.att.Network)
	if v.att.IfName != "" {
		data = appendString(append(data, ", \"interface\": "...), v.att.IfName)
	}
	notes := readIfNotes(info)
	if notes != nil {
		delete(info.Extra, ifNotesKey)
		data = notes.appendStatus(data)
	}
	data = info.AppendJSON(append(data, ",\n   \"device-info\": "...))
	data = append(data, ",\n   \"jackfield\": {"...)
	first := true
	key := func(name string) {
		if !first {
			data = append(data, ", "...)
		}
		first = false
		data = append(append(append(data, '"'), name...), "\": "...)
	}
	for _, f := range [...]struct{ name, value string }{
		{"resource", v.att.Resource}, {"device-id", v.att.DeviceID},
		{"socket-created-by", string(v.creator)}, // host or application
		{"own-path", v.ownPath},                  // the socket is here too
		{"note", v.note},
	} {
		if f.value != "" {
			key(f.name)
			data = appendString(data, f.value)
		}
	}
	if notes != nil && len(notes.Bandwidth) > 0 { // asked for; what connects the socket sees to it
		key("bandwidth")
		data = appendJSON(data, notes.Bandwidth)
	}
	if notes != nil && len(notes.Labels) > 0 {
		key("labels")
		data = appendJSON(data, notes.Labels)
	}
	if len(eal) > 0 { // arguments for DPDK's EAL
		key("eal")
		data = append(data, '[')
		for i, arg := range eal {
			if i > 0 {
				data = append(data, ", "...)
			}
			data = appendString(data, arg)
		}
		data = append(data, ']')
	}
	return append(data, "}}"...)
}

// appendString appends a JSON string.
func appendString(data []byte, s string) []byte {
	if !isPlain(s) {
		quoted, _ := json.Marshal(s) // of a string always works
		return append(data, quoted...)
	}
	return append(append(append(data, '"'), s...), '"')
}

// eal is the attachment as arguments of DPDK's EAL (DPDK Getting Started Guide,
// "EAL parameters"; Network Interface Controller Drivers, virtio and memif). A
// path with a comma cannot be written there.
func (v *viewEntry) eal(vdevs map[string]int) []string {
	mac := readIfNotes(v.att.Info).macArgument()
	vdev := func(driver, args string) []string {
		n := vdevs[driver]
		vdevs[driver]++
		return []string{"--vdev=" + driver + strconv.Itoa(n) + "," + args + mac}
	}
	switch info := v.att.Info; info.Type {
	case deviceinfo.TypePCI:
		return []string{"-a", info.PCI.PCIAddress}
	case deviceinfo.TypeVDPA:
		if v.vdpaNode != "" {
			return vdev("net_virtio_user", "path="+v.vdpaNode)
		}
	case deviceinfo.TypeVhostUser:
		if strings.Contains(v.socket, ",") {
			return nil
		}
		if v.creator == config.SideApplication {
			return vdev("net_virtio_user", "path="+v.socket+",server=1")
		}
		return vdev("net_virtio_user", "path="+v.socket)
	case deviceinfo.TypeMemif:
		if strings.Contains(v.socket, ",") || info.Memif.Mode != deviceinfo.MemifEthernet {
			return nil
		}
		role := "client"
		if v.creator == config.SideApplication {
			role = "server"
		}
		socket, abstract := v.socket, "no"
		if info.Memif.Abstract() {
			socket, abstract = strings.TrimPrefix(v.socket, "@"), "yes"
		}
		return vdev("net_memif", "role="+role+",id=0,socket="+socket+",socket-abstract="+abstract)
	}
	return nil
}

func pciAddress(i *deviceinfo.Info) string {
	switch {
	case i.Type == deviceinfo.TypePCI:
		return i.PCI.PCIAddress
	case i.Type == deviceinfo.TypeVDPA:
		return i.VDPA.PCIAddress
	}
	return ""
}

// envPrefix is JACKFIELD_<IFNAME>: upper case, and "_" for what no variable's
// name can hold.
func envPrefix(ifName string) string {
	return "JACKFIELD_" + strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, ifName)
}
