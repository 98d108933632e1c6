// SPDX-License-Identifier: Apache-2.0

// Package cdiedits turns the containerEdits of CDI spec files into edits of a container.
//
// Device nodes get what a spec file leaves out from the node on the host: type, numbers and
// mode (CDI specification, "deviceNodes"). The host is read each time, since a driver that is
// loaded again gives its nodes other numbers.
package cdiedits

import (
	"cmp"
	"fmt"
	"os"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/jackfield/jackfield/internal/diag"
	"github.com/jackfield/jackfield/pkg/edits"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

// Adder adds containerEdits to a container's edits.
type Adder struct {
	Host    hostfs.Root
	Builder *edits.Builder
	// UID and GID of the process own device nodes whose owner the file leaves out; 0 leaves
	// it to the runtime.
	UID, GID uint32
}

// Add adds one containerEdits object. The field of origin is the object's place in the file,
// such as "devices[2].containerEdits".
func (a *Adder) Add(e *specs.ContainerEdits, origin edits.Origin) error {
	b := a.Builder
	in := func(list string, index int) edits.Origin {
		o := origin
		o.Field = fmt.Sprintf("%s.%s[%d]", origin.Field, list, index)
		return o
	}
	for i, text := range e.Env {
		env := edits.ParseEnv(text, in("env", i))
		if err := b.AddEnv(&env); err != nil {
			return err
		}
	}
	for i, n := range e.DeviceNodes {
		d := edits.Device{Path: n.Path, HostPath: n.HostPath, Type: n.Type, Major: n.Major, Minor: n.Minor,
			FileMode: n.FileMode, UID: n.UID, GID: n.GID, Access: n.Permissions, Origin: in("deviceNodes", i)}
		if err := a.complete(&d); err != nil {
			return &diag.Diagnostic{File: origin.File, Field: d.Origin.Field, Rule: diag.ErrorText(err), Kind: err}
		}
		if err := b.AddDevice(&d); err != nil {
			return err
		}
	}
	for i, n := range e.NetDevices {
		if err := b.AddNetDevice(edits.NetDevice{HostName: n.HostInterfaceName, Name: n.Name, Origin: in("netDevices", i)}); err != nil {
			return err
		}
	}
	for i, h := range e.Hooks {
		b.AddHook(&edits.Hook{Stage: edits.Stage(h.HookName), Path: h.Path, Args: h.Args, Env: h.Env, Timeout: h.Timeout, Origin: in("hooks", i)})
	}
	for i, m := range e.Mounts {
		if err := b.AddMount(&edits.Mount{Destination: m.ContainerPath, Source: m.HostPath, Type: m.Type, Options: m.Options, Origin: in("mounts", i)}); err != nil {
			return err
		}
	}
	if r := e.IntelRdt; r != nil {
		o := origin
		o.Field += ".intelRdt"
		b.SetRDT(edits.RDT{ClosID: r.ClosID, L3CacheSchema: r.L3CacheSchema, MemBwSchema: r.MemBwSchema,
			Schemata: r.Schemata, EnableMonitoring: r.EnableMonitoring, Origin: o})
	}
	for i, id := range e.AdditionalGIDs {
		b.AddGID(edits.GID{ID: id, Origin: in("additionalGids", i)})
	}
	return nil
}

// complete fills in a device node from the host. A file that gives type and numbers needs no
// node on the host.
func (a *Adder) complete(d *edits.Device) error {
	d.HostPath = cmp.Or(d.HostPath, d.Path)
	if d.UID == nil && a.UID > 0 {
		d.UID = new(a.UID)
	}
	if d.GID == nil && a.GID > 0 {
		d.GID = new(a.GID)
	}
	isGiven := d.Type != "" && (d.Major != 0 || d.Type == "p")
	if isGiven && d.FileMode != nil {
		return nil
	}
	st, err := a.Host.Stat(d.HostPath)
	hostType := hostfs.DeviceType(st.Mode)
	if hostType != "" && d.FileMode == nil {
		d.FileMode = new(os.FileMode(st.Mode & 0o7777))
	}
	switch {
	case isGiven:
		return nil
	case err != nil:
		return fmt.Errorf("read host device node: %w; the file gives no type and numbers of its own", err)
	case hostType == "":
		return fmt.Errorf("host path %q is a %s, not a device node: %w", d.HostPath, hostfs.TypeName(st.Mode), errdefs.ErrInvalidArgument)
	}
	d.Type = cmp.Or(d.Type, hostType)
	if d.Type != hostType && !(d.Type == "u" && hostType == "c") {
		return fmt.Errorf("type: found %q, but host path %q is a %s: %w", d.Type, d.HostPath, hostfs.TypeName(st.Mode), errdefs.ErrInvalidArgument)
	}
	if d.Type != "p" && d.Major == 0 {
		d.Major, d.Minor = int64(unix.Major(st.Rdev)), int64(unix.Minor(st.Rdev))
	}
	return nil
}
