// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"fmt"
	"os"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/cdiregistry"
	"github.com/jackfield/jackfield/pkg/edits"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

// maxNotes bounds what the notes of one request list.
const maxNotes = 16

// noteMembers lists the devices that "all" stands for.
func noteMembers(devices []*cdiregistry.Device) string {
	names := make([]string, 0, maxNotes)
	for _, d := range devices[:min(len(devices), maxNotes)] {
		names = append(names, d.Name)
	}
	count := "1 device"
	if len(devices) > 1 {
		count = fmt.Sprintf("%d devices", len(devices))
	}
	text := "all stands for " + count + ": " + strings.Join(names, ", ")
	if more := len(devices) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// envSetting is the value of a variable, and the CDI device that set it.
type envSetting struct{ value, device string }

// noteEnvClashes notes the variables that the device sets to another value than a device before it.
func (p *planner) noteEnvClashes(device string, item *Item) {
	if p.envOf == nil {
		p.envOf = make(map[string]envSetting)
	}
	for _, e := range p.b.Edits().Env {
		before, ok := p.envOf[e.Name]
		if ok && before.value == e.Value {
			continue
		}
		p.envOf[e.Name] = envSetting{e.Value, device}
		if ok && len(item.Notes) < maxNotes {
			item.Notes = append(item.Notes, fmt.Sprintf("variable %s: %s sets %q, and %s sets %q; the last one counts", e.Name, before.device, before.value, device, e.Value))
		}
	}
}

// cdiEdits adds the edits of one containerEdits map. The origin's field is its place in
// the file, such as "devices[2].containerEdits".
//
// Device nodes get what the specification leaves out from the node on the host:
// type, numbers and mode (CDI specification, "deviceNodes").
func (p *planner) cdiEdits(e cdiregistry.Edits, origin edits.Origin) error {
	for b := &p.b; e.Next(); {
		origin.Index = uint32(e.Index())
		var err error
		switch e.List() {
		case cdiregistry.Env:
			b.RoomForEnv(e.Len() - e.Index())
			origin.List = edits.EnvList
			env := edits.EnvOf(e.Env(), origin)
			err = b.AddEnv(&env)
		case cdiregistry.DeviceNodes:
			b.RoomForDevices(e.Len() - e.Index())
			origin.List = edits.DeviceNodeList
			n := e.DeviceNode()
			d := edits.Device{Path: n.Path, HostPath: n.HostPath, Type: n.Type, Major: n.Major, Minor: n.Minor,
				FileMode: n.FileMode, UID: n.UID, GID: n.GID, Access: n.Permissions, Origin: origin}
			if err := p.complete(&d); err != nil {
				return fmt.Errorf("%s: %s: %w", origin.File, origin.Path(), err)
			}
			err = b.AddDevice(&d)
		case cdiregistry.NetDevices:
			origin.List = edits.NetDeviceList
			n := e.NetDevice()
			err = b.AddNetDevice(edits.NetDevice{HostName: n.HostInterfaceName, Name: n.Name, Origin: origin})
		case cdiregistry.Hooks:
			b.RoomForHooks(e.Len() - e.Index())
			origin.List = edits.HookList
			h := e.Hook()
			b.AddHook(&edits.Hook{Stage: edits.Stage(h.HookName), Path: h.Path, Args: h.Args, Env: h.Env, Timeout: h.Timeout, Origin: origin})
		case cdiregistry.Mounts:
			b.RoomForMounts(e.Len() - e.Index())
			origin.List = edits.MountList
			m := e.Mount()
			err = b.AddMount(&edits.Mount{Destination: m.ContainerPath, Source: m.HostPath, Type: m.Type, Options: m.Options, Origin: origin})
		case cdiregistry.IntelRdt:
			o := origin
			o.Field, o.List = origin.Field+".intelRdt", edits.NoList
			r := e.IntelRdt()
			b.SetRDT(edits.RDT{ClosID: r.ClosID, L3CacheSchema: r.L3CacheSchema, MemBwSchema: r.MemBwSchema,
				Schemata: r.Schemata, EnableMonitoring: r.EnableMonitoring, Origin: o})
		case cdiregistry.AdditionalGIDs:
			origin.List = edits.GIDList
			b.AddGID(edits.GID{ID: e.AdditionalGID(), Origin: origin})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// complete completes a device node from the host. A file that gives type and
// numbers itself needs no node on the host.
func (p *planner) complete(d *edits.Device) error {
	if d.HostPath == "" {
		d.HostPath = d.Path
	}
	user := p.req.User
	if user != nil && d.UID == nil && user.UID > 0 {
		uid := user.UID
		d.UID = &uid
	}
	if user != nil && d.GID == nil && user.GID > 0 {
		gid := user.GID
		d.GID = &gid
	}
	given := d.Type != "" && (d.Major != 0 || d.Type == "p")
	if given && d.FileMode != nil {
		return nil // the node on the host could add nothing
	}
	st, err := p.host.Stat(d.HostPath)
	if err != nil {
		if given {
			return nil
		}
		return fmt.Errorf("read host device node: %w; the file gives no type and numbers of its own", err)
	}
	typ := deviceType(st.Mode)
	if typ == "" {
		if given {
			return nil
		}
		return fmt.Errorf("host path %q is a %s, not a device node: %w", d.HostPath, hostfs.TypeName(st.Mode), errdefs.ErrInvalidArgument)
	}
	if d.FileMode == nil {
		d.FileMode = p.memory.mode(os.FileMode(st.Mode & 0o7777))
	}
	if given {
		return nil
	}
	if d.Type == "" {
		d.Type = typ
	}
	if d.Type != typ && !(d.Type == "u" && typ == "c") {
		return fmt.Errorf("type: found %q, but host path %q is a %s: %w", d.Type, d.HostPath, hostfs.TypeName(st.Mode), errdefs.ErrInvalidArgument)
	}
	if d.Type != "p" && d.Major == 0 {
		d.Major, d.Minor = int64(unix.Major(st.Rdev)), int64(unix.Minor(st.Rdev))
	}
	return nil
}

func deviceType(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFCHR:
		return "c"
	case unix.S_IFBLK:
		return "b"
	case unix.S_IFIFO:
		return "p"
	}
	return ""
}
