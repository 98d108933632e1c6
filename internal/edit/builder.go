// SPDX-License-Identifier: Apache-2.0

package edit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/jackfield/jackfield/internal/base/quantity"
)

// Existing is the state of the container before any edit, from the kubelet, the runtime, a device
// plugin or another NRI plugin. An edit never replaces it silently.
type Existing struct {
	Devices []Device
	Mounts  []Mount
	Hooks   []Hook
	Env     []string // NAME=value
	GIDs    []uint32 // groups of the process
	Memlock *Rlimit  // RLIMIT_MEMLOCK of the process; nil if it is unknown
	// CDIReplaces lets a CDI device node or mount replace an existing one at the same path, as
	// CDI's own library does. It is for an OCI spec that a person passes in. Without it, two
	// things at one path are a conflict.
	CDIReplaces bool
	// Replaceable has the destinations of the mounts that a CDI mount replaces without CDIReplaces: the
	// runtime mounts them into every container, and no one requested them.
	Replaceable []string
}

// Builder merges edits into one Set. Create it with NewBuilder.
//
// A Builder from Delta holds the edits of one request. Each Add checks the edit against the base and the delta, and
// changes only the delta. The base changes in Merge, which therefore cannot fail.
type Builder struct {
	base *Builder // of a delta; nil for none
	have *Existing

	env     keyedList[Env]
	devices keyedList[Device]
	mounts  keyedList[Mount]

	hooks      []Hook
	netDevices []NetDevice
	gids       []GID
	rdt        *RDT
	memlock    *Memlock
	changes    int
}

// NewBuilder returns a Builder without edits, for a container that already has these things.
func NewBuilder(have Existing) *Builder {
	return &Builder{have: &have, env: keyedList[Env]{key: (*Env).key}, devices: keyedList[Device]{key: (*Device).key},
		mounts: keyedList[Mount]{key: (*Mount).key}}
}

// Delta returns a Builder for the edits of one request. Until it is merged or dropped, b must not change.
func (b *Builder) Delta() *Builder {
	return &Builder{base: b, have: b.have,
		env:     keyedList[Env]{base: &b.env, key: b.env.key},
		devices: keyedList[Device]{base: &b.devices, key: b.devices.key},
		mounts:  keyedList[Mount]{base: &b.mounts, key: b.mounts.key},
	}
}

// Merge adds the edits of a delta of b.
func (b *Builder) Merge(delta *Builder) {
	for i := range delta.env.items {
		b.env.put(&delta.env.items[i])
	}
	for i := range delta.devices.items {
		b.devices.moveToEnd(&delta.devices.items[i])
	}
	for i := range delta.mounts.items {
		b.mounts.moveToEnd(&delta.mounts.items[i])
	}
	b.hooks = append(b.hooks, delta.hooks...)
	b.netDevices = append(b.netDevices, delta.netDevices...)
	b.gids = append(b.gids, delta.gids...)
	b.rdt = cmp.Or(delta.rdt, b.rdt)
	b.memlock = cmp.Or(delta.memlock, b.memlock)
	b.changes += delta.changes
}

// Set sorts and returns the merged result. Do not use the Builder afterwards.
func (b *Builder) Set() *Set {
	sortMounts(b.mounts.items)
	return b.Edits()
}

// Edits returns the edits so far, unsorted. For a delta, these exclude the edits of its base. Do not change them.
func (b *Builder) Edits() *Set {
	return &Set{Env: b.env.items, Devices: b.devices.items, Mounts: b.mounts.items,
		Hooks: b.hooks, NetDevices: b.netDevices, GIDs: b.gids, RDT: b.rdt,
		Memlock: b.memlock}
}

// Preview returns the edits that the base of a delta would have after Merge, unsorted. Do not change them.
func (b *Builder) Preview() *Set {
	merged := NewBuilder(*b.have)
	merged.Merge(b.base)
	merged.Merge(b)
	return merged.Edits()
}

// Changes counts the edits that the container did not have before.
func (b *Builder) Changes() int { return b.changes }

// Mounts calls yield with every mount of the container and of the edits so far. Do not change
// them.
func (b *Builder) Mounts(yield func(*Mount) bool) {
	for i := range b.have.Mounts {
		if m := &b.have.Mounts[i]; !b.isReplacedMount(m) && !yield(m) {
			return
		}
	}
	if b.base != nil {
		for i := range b.base.mounts.items {
			m := &b.base.mounts.items[i]
			if b.mounts.position(m.key()) < 0 && !yield(m) {
				return
			}
		}
	}
	for i := range b.mounts.items {
		if !yield(&b.mounts.items[i]) {
			return
		}
	}
}

// AddDevice adds a device node. A node that the container already has is not added. Another
// device at the same path is an errdefs.ErrConflict, except that a later CDI device replaces an
// earlier one, as CDI prescribes.
func (b *Builder) AddDevice(d *Device) error {
	if h := b.existingDevice(d); h != nil {
		if h.FileType() == d.FileType() && h.Major == d.Major && h.Minor == d.Minor {
			return nil // u is the kernel's other name for c
		}
		return NewConflict("device path", d.Path, existing, d.Origin, fmt.Sprintf("the container has %s %d:%d there, "+
			"and the request has %s %d:%d", h.Type, h.Major, h.Minor, d.Type, d.Major, d.Minor))
	}
	added := *d
	if have := b.devices.find(d.key()); have != nil {
		isCDI := d.Origin.Source == CDI && have.Origin.Source == CDI
		access := unionAccess(have.Access, d.Access)
		// CDI gives precedence to the last device of a path. A node that two requests share has the access of both.
		switch {
		case isCDI && have.sameNode(d):
			added.Access = access
		case isCDI:
		case !have.sameNode(d):
			return NewConflict("device path", d.Path, have.Origin, d.Origin,
				fmt.Sprintf("%s %d:%d against %s %d:%d", have.Type, have.Major, have.Minor, d.Type, d.Major, d.Minor))
		case access == have.Access:
			return nil
		default:
			// The device then counts as this request's: without it, the container would have less access.
			added = *have
			added.Access, added.Origin = access, d.Origin
		}
	}
	b.devices.moveToEnd(&added)
	b.changes++
	return nil
}

// AddMount adds a mount by the rules of AddDevice, with the destination as the key. The same
// source at the same destination is the same mount.
func (b *Builder) AddMount(m *Mount) error {
	if h := b.existingMount(m); h != nil {
		if h.Source == m.Source {
			return nil
		}
		return NewConflict("mount destination", m.Destination, existing, m.Origin,
			fmt.Sprintf("the container has %q mounted there, and the request has %q: remove the pod's mount or the request",
				h.Source, m.Source))
	}
	for _, destination := range spellings(m.Destination) {
		have := b.mounts.find(destination)
		switch {
		case have == nil:
		case m.Origin.Source == CDI && have.Origin.Source == CDI:
			// It replaces a mount of its own spelling. Mounts below /run and /var/run are both kept: these are one
			// directory in most images, but not in all.
		case have.sameMount(m):
			return nil
		default:
			return NewConflict("mount destination", m.Destination, have.Origin, m.Origin,
				fmt.Sprintf("%q against %q", have.Source, m.Source))
		}
	}
	added := *m
	added.Replaces = b.replaceableMount(m)
	b.mounts.moveToEnd(&added)
	b.changes++
	return nil
}

// AddEnv adds a variable. A later CDI variable replaces an earlier one in place. A variable of
// another source with another value is an errdefs.ErrConflict. A variable that the container already has
// with this value is not added.
func (b *Builder) AddEnv(e *Env) error {
	if have := b.env.find(e.Name); have != nil {
		if have.Value == e.Value {
			return nil
		}
		if e.Origin.Source != CDI || have.Origin.Source != CDI {
			return NewConflict("environment variable", e.Name, have.Origin, e.Origin, "")
		}
	} else if at := LastEnv(b.have.Env, e.Name); at >= 0 && b.have.Env[at] == e.Text() {
		return nil
	}
	b.env.put(e)
	b.changes++
	return nil
}

// AddHook adds a hook. It leaves out a hook that the container already has, because then the
// runtime injected the device itself. Equal hooks of several edits are all kept.
func (b *Builder) AddHook(h *Hook) {
	if slices.ContainsFunc(b.have.Hooks, func(have Hook) bool { return have.sameHook(h) }) {
		return
	}
	b.hooks = append(b.hooks, *h)
	b.changes++
}

// AddNetDevice adds a network device. The same host device under another name, or another host
// device under the same name, is an errdefs.ErrConflict.
func (b *Builder) AddNetDevice(n NetDevice) error {
	for with := b; with != nil; with = with.base {
		for _, have := range with.netDevices {
			if have.HostName == n.HostName && have.Name == n.Name {
				return nil
			}
			if have.HostName == n.HostName || have.Name == n.Name {
				return NewConflict("network device", n.HostName, have.Origin, n.Origin, "")
			}
		}
	}
	b.netDevices = append(b.netDevices, n)
	b.changes++
	return nil
}

// AddGID adds an additional group once. It leaves out group 0, as CDI prescribes, and groups that the process has.
func (b *Builder) AddGID(g GID) {
	isSame := func(have GID) bool { return have.ID == g.ID }
	if g.ID == 0 || slices.Contains(b.have.GIDs, g.ID) || slices.ContainsFunc(b.gids, isSame) ||
		b.base != nil && slices.ContainsFunc(b.base.gids, isSame) {
		return
	}
	b.gids = append(b.gids, g)
	b.changes++
}

// SetRDT sets the RDT configuration. The last one wins, as CDI prescribes.
func (b *Builder) SetRDT(r RDT) {
	b.rdt = &r
	b.changes++
}

// RaiseMemlock raises the limit of locked memory, soft and hard. It lowers neither limit: not those of the container,
// and not those of the process from which the container inherits its limits, if they are known.
func (b *Builder) RaiseMemlock(limit quantity.Memory, inherited *Rlimit, o Origin) {
	if b.Memlock() >= limit {
		return
	}
	m := Memlock{Rlimit{limit, limit}, o}
	for _, have := range []*Rlimit{b.have.Memlock, inherited} {
		if have != nil {
			m.Hard = max(have.Hard, m.Hard)
		}
	}
	b.memlock = &m
	b.changes++
}

// Memlock returns the limit of locked memory that the container will have; 0 if it is unknown.
func (b *Builder) Memlock() quantity.Memory {
	switch {
	case b.memlock != nil:
		return b.memlock.Soft
	case b.base != nil:
		return b.base.Memlock()
	case b.have.Memlock != nil:
		return b.have.Memlock.Soft
	}
	return 0
}

// existingDevice returns the container's own device at the path of d, if no edit replaces it, or nil.
func (b *Builder) existingDevice(d *Device) *Device {
	replaces := func(d, h *Device) bool {
		return b.have.CDIReplaces && d.Origin.Source == CDI && EqualClean(d.Path, h.Path)
	}
	for i := range b.have.Devices {
		h := &b.have.Devices[i]
		if !SameContainerPath(h.Path, d.Path) || replaces(d, h) {
			continue
		}
		if added := b.devices.find(h.key()); added == nil || !replaces(added, h) {
			return h
		}
	}
	return nil
}

// existingMount returns the container's own mount at the destination of m, if no edit replaces it, or nil.
func (b *Builder) existingMount(m *Mount) *Mount {
	for i := range b.have.Mounts {
		h := &b.have.Mounts[i]
		if SameContainerPath(h.Destination, m.Destination) && !b.isReplacedMount(h) && !b.replacesMount(h, m) {
			return h
		}
	}
	return nil
}

// isReplacedMount reports whether a CDI mount of the edits replaced a mount of the container.
func (b *Builder) isReplacedMount(have *Mount) bool {
	added := b.mounts.find(have.key())
	return added != nil && b.replacesMount(have, added)
}

// replacesMount reports whether an edit replaces a mount that the container has. An edit with the same source does not.
func (b *Builder) replacesMount(have, m *Mount) bool {
	return EqualClean(have.Destination, m.Destination) && m.Origin.Source == CDI &&
		(b.have.CDIReplaces || have.Source != m.Source && slices.Contains(b.have.Replaceable, have.Destination))
}

// replaceableMount returns the destination of the container's replaceable mount that m replaces; "" for none.
func (b *Builder) replaceableMount(m *Mount) string {
	for i := range b.have.Mounts {
		if h := &b.have.Mounts[i]; !b.have.CDIReplaces && b.replacesMount(h, m) {
			return h.Destination
		}
	}
	return ""
}

// sortMounts sorts by depth, stably, so that no mount hides one below it.
func sortMounts(mounts []Mount) {
	depth := func(m Mount) int { return strings.Count(Clean(m.Destination), "/") }
	slices.SortStableFunc(mounts, func(a, b Mount) int { return cmp.Compare(depth(a), depth(b)) })
}

// unionAccess joins two access strings in the order r, w, m. An empty string stands for the
// runtime's default, which the union with any other keeps.
func unionAccess(a, b string) string {
	if a == b {
		return a
	}
	if a == "" || b == "" {
		return ""
	}
	var out []byte
	for _, c := range []byte("rwm") {
		if strings.IndexByte(a, c) >= 0 || strings.IndexByte(b, c) >= 0 {
			out = append(out, c)
		}
	}
	return string(out)
}
