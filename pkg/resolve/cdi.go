// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"fmt"
	"os"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/jackfield/jackfield/pkg/edits"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

// cdiEdits adds the edits of one containerEdits map. field is its place in the
// file, such as "devices[2].containerEdits". The lists of strings in the map but env
// are the caller's own, as the registry hands them out, and become a part of the set.
//
// Device nodes get what the specification leaves out from the node on the host:
// type, numbers and mode (CDI specification, "deviceNodes").
func (p *planner) cdiEdits(b *edits.Builder, ce *specs.ContainerEdits, origin edits.Origin, field string) error {
	if ce == nil {
		return nil
	}
	origin.Field = field
	at := func(list edits.List, i int) edits.Origin {
		origin.List, origin.Index = list, uint32(i)
		return origin
	}
	for i, kv := range ce.Env {
		name, value, _ := strings.Cut(kv, "=")
		if err := b.AddEnv(edits.Env{Name: name, Value: value, Origin: at(edits.EnvList, i)}); err != nil {
			return err
		}
	}
	for i, dn := range ce.DeviceNodes {
		d, err := p.cdiDevice(dn)
		if err != nil {
			o := at(edits.DeviceNodeList, i)
			return fmt.Errorf("%s: %s: %w", o.File, o.Path(), err)
		}
		d.Origin = at(edits.DeviceNodeList, i)
		if err := b.AddDevice(d); err != nil {
			return err
		}
	}
	for i, nd := range ce.NetDevices {
		if err := b.AddNetDevice(edits.NetDevice{HostName: nd.HostInterfaceName, Name: nd.Name, Origin: at(edits.NetDeviceList, i)}); err != nil {
			return err
		}
	}
	for i, m := range ce.Mounts {
		mount := edits.Mount{Destination: m.ContainerPath, Source: m.HostPath, Type: m.Type, Options: m.Options, Origin: at(edits.MountList, i)}
		if err := b.AddMount(mount); err != nil {
			return err
		}
	}
	for i, h := range ce.Hooks {
		b.AddHook(edits.Hook{Stage: edits.Stage(h.HookName), Path: h.Path, Args: h.Args, Env: h.Env, Timeout: h.Timeout, Origin: at(edits.HookList, i)})
	}
	if r := ce.IntelRdt; r != nil {
		o := origin
		o.Field, o.List, o.Index = field+".intelRdt", edits.NoList, 0
		b.SetRDT(edits.RDT{ClosID: r.ClosID, L3CacheSchema: r.L3CacheSchema, MemBwSchema: r.MemBwSchema,
			Schemata: r.Schemata, EnableMonitoring: r.EnableMonitoring, Origin: o})
	}
	for i, gid := range ce.AdditionalGIDs {
		b.AddGID(edits.GID{ID: gid, Origin: at(edits.GIDList, i)})
	}
	return nil
}

// cdiDevice completes a device node from the host. A file that gives type and
// numbers itself needs no node on the host.
func (p *planner) cdiDevice(dn *specs.DeviceNode) (edits.Device, error) {
	d := edits.Device{Path: dn.Path, HostPath: dn.HostPath, Type: dn.Type, Major: dn.Major, Minor: dn.Minor,
		FileMode: dn.FileMode, UID: dn.UID, GID: dn.GID, Access: dn.Permissions}
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
	complete := d.Type != "" && (d.Major != 0 || d.Type == "p")
	if complete && d.FileMode != nil {
		return d, nil // the node on the host could add nothing
	}
	st, err := p.host.Stat(d.HostPath)
	if err != nil {
		if complete {
			return d, nil
		}
		return d, fmt.Errorf("read host device node: %w; the file gives no type and numbers of its own", err)
	}
	typ := deviceType(st.Mode)
	if typ == "" {
		if complete {
			return d, nil
		}
		return d, fmt.Errorf("host path %q is a %s, not a device node: %w", d.HostPath, hostfs.TypeName(st.Mode), errdefs.ErrInvalidArgument)
	}
	if d.FileMode == nil {
		d.FileMode = p.memory.mode(os.FileMode(st.Mode & 0o7777))
	}
	if complete {
		return d, nil
	}
	if d.Type == "" {
		d.Type = typ
	}
	if d.Type != typ && !(d.Type == "u" && typ == "c") {
		return d, fmt.Errorf("type: found %q, but host path %q is a %s: %w", d.Type, d.HostPath, hostfs.TypeName(st.Mode), errdefs.ErrInvalidArgument)
	}
	if d.Type != "p" && d.Major == 0 {
		d.Major, d.Minor = int64(unix.Major(st.Rdev)), int64(unix.Minor(st.Rdev))
	}
	return d, nil
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
