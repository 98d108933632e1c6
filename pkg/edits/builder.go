// SPDX-License-Identifier: Apache-2.0

package edits

import (
	"slices"
	"strings"
)

// Existing is what the container has before any edit: given by the kubelet, the
// runtime, a device plugin or another NRI plugin. It is never replaced silently.
type Existing struct {
	Devices []Device
	Mounts  []Mount
	Hooks   []Hook
	Env     []string // NAME=value
	// More are mounts beyond Mounts, where they are kept already; nil for none.
	More Mounted
	// CDIReplaces lets a CDI device node or mount take the place of what is there,
	// as CDI's own library does: for an OCI spec that a person hands over. Without it
	// something else at the same place is a conflict.
	CDIReplaces bool
}

// Mounted gives the destination and source of mounts by number from 0; false beyond
// the last. It must give the same as long as the Existing is used that it is a part of.
type Mounted interface {
	MountAt(i int) (destination, source string, ok bool)
}

// Builder merges edits into one Set. It is made by NewBuilder.
type Builder struct {
	set     *Set
	have    Existing
	names   EnvNames // of have
	changes int
}

// NewBuilder starts to merge into set, which must be empty and may have room, for a
// container that has these things already.
func NewBuilder(set *Set, have Existing) Builder {
	return Builder{set: set, have: have, names: NamesOf(have.Env)}
}

// Set is the merged result. The Builder must not be used afterwards.
func (b *Builder) Set() *Set {
	sortMounts(b.set.Mounts)
	return b.set
}

// Edits are the edits so far, in no order, which must not be changed.
func (b *Builder) Edits() *Set { return b.set }

// RoomForEnv makes room for n more variables at once, the others for n more of what
// they are called after.
func (b *Builder) RoomForEnv(n int)     { b.set.Env = slices.Grow(b.set.Env, n) }
func (b *Builder) RoomForDevices(n int) { b.set.Devices = slices.Grow(b.set.Devices, n) }
func (b *Builder) RoomForMounts(n int)  { b.set.Mounts = slices.Grow(b.set.Mounts, n) }
func (b *Builder) RoomForHooks(n int)   { b.set.Hooks = slices.Grow(b.set.Hooks, n) }

// Changes counts the edits that made a difference to the set.
func (b *Builder) Changes() int { return b.changes }

// Clone is a Builder in the same state that shares nothing that changes.
func (b *Builder) Clone() Builder {
	c := *b
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

// mount is the container's mount of a number, from 0.
func (h *Existing) mount(i int) (destination, source string, ok bool) {
	if i < len(h.Mounts) {
		return h.Mounts[i].Destination, h.Mounts[i].Source, true
	}
	if h.More == nil {
		return "", "", false
	}
	return h.More.MountAt(i - len(h.Mounts))
}

// Mounts calls yield with every mount of the container and the set so far, which
// must not be changed. Of a mount that the container has, the type and options may
// be missing.
func (b *Builder) Mounts(yield func(*Mount) bool) {
	for i := 0; ; i++ {
		destination, source, ok := b.have.mount(i)
		if !ok {
			break
		}
		if b.replaced(destination) {
			continue
		}
		if i < len(b.have.Mounts) {
			if !yield(&b.have.Mounts[i]) {
				return
			}
		} else if !yield(&Mount{Destination: destination, Source: source}) {
			return
		}
	}
	for i := range b.set.Mounts {
		if !yield(&b.set.Mounts[i]) {
			return
		}
	}
}

// sortMounts orders by depth, stably, so that a mount never hides one that was
// made below it before.
func sortMounts(mounts []Mount) {
	depth := func(m *Mount) int {
		if n := slashes(m.Destination); n > 0 && !strings.HasPrefix(m.Destination, "/var/run") {
			return n
		}
		return strings.Count(cleanPath(m.Destination), "/")
	}
	// An insertion sort: sets are small and mostly sorted, and a mount is large.
	for i := 1; i < len(mounts); i++ {
		d := depth(&mounts[i])
		for j := i; j > 0 && d < depth(&mounts[j-1]); j-- {
			mounts[j], mounts[j-1] = mounts[j-1], mounts[j]
		}
	}
}
