// SPDX-License-Identifier: Apache-2.0

package cdiedits

import (
	"fmt"
	"strconv"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// Adder adds containerEdits to a container's edits.
type Adder struct {
	Host    hostfs.Root
	Builder *edit.Builder
	// UID and GID of the process own device nodes for which the file sets no owner. With 0, the runtime chooses.
	UID, GID uint32
}

// Add adds one containerEdits object. The field of origin is the object's place in the file,
// such as "devices[2].containerEdits".
func (a *Adder) Add(e *specs.ContainerEdits, origin edit.Origin) error {
	b := a.Builder
	in := func(list string, index int) edit.Origin {
		o := origin
		o.Field = origin.Field + "." + list + "[" + strconv.Itoa(index) + "]"
		return o
	}
	for i, text := range e.Env {
		env := edit.ParseEnv(text, in("env", i))
		if err := b.AddEnv(&env); err != nil {
			return err
		}
	}
	for i, n := range e.DeviceNodes {
		d, err := a.complete(n, in("deviceNodes", i))
		if err != nil {
			return err
		}
		if err := b.AddDevice(d); err != nil {
			return err
		}
	}
	for i, n := range e.NetDevices {
		d := edit.NetDevice{HostName: n.HostInterfaceName, Name: n.Name, Origin: in("netDevices", i)}
		if err := b.AddNetDevice(d); err != nil {
			return err
		}
	}
	for i, h := range e.Hooks {
		b.AddHook(&edit.Hook{Stage: edit.Stage(h.HookName), Path: h.Path, Args: h.Args, Env: h.Env, Timeout: h.Timeout,
			Origin: in("hooks", i)})
	}
	for i, m := range e.Mounts {
		added := edit.Mount{Destination: m.ContainerPath, Source: m.HostPath, Type: m.Type, Options: m.Options,
			Origin: in("mounts", i)}
		if err := b.AddMount(&added); err != nil {
			return err
		}
	}
	if r := e.IntelRdt; r != nil {
		o := origin
		o.Field += ".intelRdt"
		b.SetRDT(edit.RDT{ClosID: r.ClosID, L3CacheSchema: r.L3CacheSchema, MemBwSchema: r.MemBwSchema,
			Schemata: r.Schemata, EnableMonitoring: r.EnableMonitoring, Origin: o})
	}
	for i, id := range e.AdditionalGIDs {
		b.AddGID(edit.GID{ID: id, Origin: in("additionalGids", i)})
	}
	return nil
}

// complete fills in a device node from the host. The runtime creates the node with the numbers of the file, so a node
// on the host with other numbers is an error.
func (a *Adder) complete(n *specs.DeviceNode, origin edit.Origin) (*edit.Device, error) {
	completed := *n
	if fault := completeNode(a.Host, &completed); fault != nil && !fault.IsWarning() {
		return nil, inHostPath(fault, completed.HostPath, origin)
	}
	d := &edit.Device{Path: n.Path, HostPath: completed.HostPath, Type: completed.Type,
		Major: completed.Major, Minor: completed.Minor, FileMode: completed.FileMode,
		UID: n.UID, GID: n.GID, Access: n.Permissions, Origin: origin}
	if d.UID == nil && a.UID > 0 {
		d.UID = new(a.UID)
	}
	if d.GID == nil && a.GID > 0 {
		d.GID = new(a.GID)
	}
	return d, nil
}

// inHostPath completes a fault of the host with its path and its place in a file.
func inHostPath(fault *diag.Diagnostic, hostPath string, origin edit.Origin) *diag.Diagnostic {
	d := *fault
	d.File, d.Field, d.Rule = origin.File, origin.Field, fmt.Sprintf("host path %q %s", hostPath, fault.Rule)
	return &d
}
