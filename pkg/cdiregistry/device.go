// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"maps"
	"slices"

	specs "tags.cncf.io/container-device-interface/specs-go"
)

// Device is one CDI device as its spec file declares it. It belongs to the caller, who may
// change every part of it.
type Device struct {
	// Name is the qualified name, "vendor.com/class=name".
	Name string
	// Kind is "vendor.com/class".
	Kind string
	// File is the host path of the spec file. Devices of one file share their spec-level
	// edits, which a container gets once.
	File string
	// Index is the position in the file's list of devices, from 0.
	Index int
	// Priority is the position of the file's directory among the spec directories, from 0.
	// The higher one wins.
	Priority int
	// CDIVersion is the file's cdiVersion without a leading "v".
	CDIVersion string
	// Annotations are those of the device, SpecAnnotations those of the file.
	Annotations     map[string]string
	SpecAnnotations map[string]string
	// SpecEdits go with any device of the file, before Edits. Neither is nil.
	SpecEdits *specs.ContainerEdits
	Edits     *specs.ContainerEdits
}

// device returns a copy that shares nothing with the registry.
func (d declaration) device() *Device {
	spec := d.file.spec
	declared := &spec.Devices[d.index]
	return &Device{
		Name: d.name, Kind: spec.Kind, File: d.file.hostPath(), Index: d.index, Priority: d.file.dir.priority, CDIVersion: spec.Version,
		Annotations: maps.Clone(declared.Annotations), SpecAnnotations: maps.Clone(spec.Annotations),
		SpecEdits: copyEdits(&spec.ContainerEdits), Edits: copyEdits(&declared.ContainerEdits),
	}
}

func copyEdits(e *specs.ContainerEdits) *specs.ContainerEdits {
	rdt := copyOf(e.IntelRdt)
	if rdt != nil {
		rdt.Schemata = slices.Clone(rdt.Schemata)
	}
	return &specs.ContainerEdits{
		Env: slices.Clone(e.Env),
		DeviceNodes: copyList(e.DeviceNodes, func(n *specs.DeviceNode) {
			n.FileMode, n.UID, n.GID = copyOf(n.FileMode), copyOf(n.UID), copyOf(n.GID)
		}),
		NetDevices: copyList(e.NetDevices, func(*specs.LinuxNetDevice) {}),
		Hooks: copyList(e.Hooks, func(h *specs.Hook) {
			h.Args, h.Env, h.Timeout = slices.Clone(h.Args), slices.Clone(h.Env), copyOf(h.Timeout)
		}),
		Mounts:         copyList(e.Mounts, func(m *specs.Mount) { m.Options = slices.Clone(m.Options) }),
		IntelRdt:       rdt,
		AdditionalGIDs: slices.Clone(e.AdditionalGIDs),
	}
}

// copyList copies a list and its items, of which own copies what is behind pointers.
func copyList[T any](list []*T, own func(*T)) []*T {
	if list == nil {
		return nil
	}
	out := make([]*T, len(list))
	for i, item := range list {
		out[i] = copyOf(item)
		own(out[i])
	}
	return out
}

func copyOf[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}
