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
	origin.Field, origin.List = field, edits.EnvList
	for i, kv := range ce.Env {
		origin.Index = uint32(i)
		name, value, _ := strings.Cut(kv, "=")
		if err := b.AddEnv(&edits.Env{Name: name, Value: value, Origin: origin}); err != nil {
			return err
		}
	}
	origin.List = edits.DeviceNodeList
	for i, dn := range ce.DeviceNodes {
		origin.Index = uint32(i)
		d := edits.Device{Path: dn.Path, HostPath: dn.HostPath, Type: dn.Type, Major: dn.Major, Minor: dn.Minor,
			FileMode: dn.FileMode, UID: dn.UID, GID: dn.GID, Access: dn.Permissions, Origin: origin}
		if err := p.complete(&d); err != nil {
			return fmt.Errorf("%s: %s: %w", origin.File, origin.Path(), err)
		}
		if err := b.AddDevice(&d); err != nil {
			return err
		}
	}
	origin.List = edits.NetDeviceList
	for i, nd := range ce.NetDevices {
		origin.Index = uint32(i)
		if err := b.AddNetDevice(edits.NetDevice{HostName: nd.HostInterfaceName, Name: nd.Name, Origin: origin}); err != nil {
			return err
		}
	}
	origin.List = edits.MountList
	for i, m := range ce.Mounts {
		origin.Index = uint32(i)
		if err := b.AddMount(&edits.Mount{Destination: m.ContainerPath, Source: m.HostPath, Type: m.Type, Options: m.Options, Origin: origin}); err != nil {
			return err
		}
	}
	origin.List = edits.HookList
	for i, h := range ce.Hooks {
		origin.Index = uint32(i)
		b.AddHook(&edits.Hook{Stage: edits.Stage(h.HookName), Path: h.Path, Args: h.Args, Env: h.Env, Timeout: h.Timeout, Origin: origin})
	}
	origin.List = edits.GIDList
	for i, gid := range ce.AdditionalGIDs {
		origin.Index = uint32(i)
		b.AddGID(edits.GID{ID: gid, Origin: origin})
	}
	if r := ce.IntelRdt; r != nil {
		origin.Field, origin.List, origin.Index = field+".intelRdt", edits.NoList, 0
		b.SetRDT(edits.RDT{ClosID: r.ClosID, L3CacheSchema: r.L3CacheSchema, MemBwSchema: r.MemBwSchema,
			Schemata: r.Schemata, EnableMonitoring: r.EnableMonitoring, Origin: origin})
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
