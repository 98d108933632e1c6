// SPDX-License-Identifier: Apache-2.0

package edit

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Existing is what the container has before any edit, from the kubelet, the runtime, a device
// plugin or another NRI plugin. An edit never replaces it silently.
type Existing struct {
	Devices []Device
	Mounts  []Mount
	Hooks   []Hook
	Env     []string // NAME=value
	GIDs    []uint32 // groups of the process
	// CDIReplaces lets a CDI device node or mount replace an existing one at the same path, as
	// CDI's own library does. It is for an OCI spec that a person passes in. Without it, two
	// things at one path are a conflict.
	CDIReplaces bool
	// Replaceable has the destinations of the mounts that a CDI mount replaces without CDIReplaces: the
	// runtime mounts them into every container, and no one asked for them.
	Replaceable []string
}

// Builder merges edits into one Set. Create it with NewBuilder.
type Builder struct {
	set     *Set
	have    Existing
	changes int
	// The positions in the lists of the set: of devices by Clean, of mounts by their absolute destination, of
	// variables by name. "all" of a kind can be thousands of devices.
	devices, mounts, env map[string]int
}

// NewBuilder returns a Builder with an empty set, for a container that already has these things.
func NewBuilder(have Existing) Builder {
	return Builder{set: &Set{}, have: have, devices: map[string]int{}, mounts: map[string]int{}, env: map[string]int{}}
}

// Set sorts and returns the merged result. Do not use the Builder afterwards.
func (b *Builder) Set() *Set {
	sortMounts(b.set.Mounts)
	return b.set
}

// Edits returns the edits so far, unsorted. Do not change them.
func (b *Builder) Edits() *Set { return b.set }

// Changes counts the edits that changed the set.
func (b *Builder) Changes() int { return b.changes }

// Clone returns a Builder in the same state that shares nothing that changes.
func (b *Builder) Clone() Builder {
	c := *b
	c.devices, c.mounts, c.env = maps.Clone(b.devices), maps.Clone(b.mounts), maps.Clone(b.env)
	c.set = &Set{
		Env:        slices.Clone(b.set.Env),
		Devices:    slices.Clone(b.set.Devices),
		Mounts:     slices.Clone(b.set.Mounts),
		Hooks:      slices.Clone(b.set.Hooks),
		NetDevices: slices.Clone(b.set.NetDevices),
		GIDs:       slices.Clone(b.set.GIDs),
		RDT:        b.set.RDT,
	}
	return c
}

// Mounts calls yield with every mount of the container and of the set so far. Do not change
// them.
func (b *Builder) Mounts(yield func(*Mount) bool) {
	for i := range b.have.Mounts {
		if m := &b.have.Mounts[i]; !b.isReplaced(m) && !yield(m) {
			return
		}
	}
	for i := range b.set.Mounts {
		if !yield(&b.set.Mounts[i]) {
			return
		}
	}
}

// sortMounts sorts by depth, stably, so that no mount hides one below it.
func sortMounts(mounts []Mount) {
	depth := func(m Mount) int { return strings.Count(Clean(m.Destination), "/") }
	slices.SortStableFunc(mounts, func(a, b Mount) int { return cmp.Compare(depth(a), depth(b)) })
}
