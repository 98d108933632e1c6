// SPDX-License-Identifier: Apache-2.0

package edit

import (
	"fmt"
	"slices"
	"strings"
)

// AddDevice adds a device node. A node that the container already has stays as it is. Another
// device at the same path is an errdefs.ErrConflict, except that a later CDI device replaces an
// earlier one, as CDI prescribes.
func (b *Builder) AddDevice(d *Device) error {
	if b.replaces(&d.Origin) {
		// A Clone may share the list, so it stays as it is.
		b.have.Devices = slices.DeleteFunc(slices.Clone(b.have.Devices), func(h Device) bool { return EqualClean(h.Path, d.Path) })
	}
	for i := range b.have.Devices {
		if h := &b.have.Devices[i]; SameContainerPath(h.Path, d.Path) {
			if h.FileType() == d.FileType() && h.Major == d.Major && h.Minor == d.Minor {
				return nil // u is the kernel's other name for c
			}
			return NewConflict("device path", d.Path, existing, d.Origin,
				fmt.Sprintf("the container has %s %d:%d there, and the request has %s %d:%d", h.Type, h.Major, h.Minor, d.Type, d.Major, d.Minor))
		}
	}
	added := *d
	key := func(d *Device) string { return Clean(d.Path) }
	if i, ok := b.devices[key(d)]; ok {
		have := &b.set.Devices[i]
		isCDI := d.Origin.Source == CDI && have.Origin.Source == CDI
		switch {
		case isCDI && have.sameNode(d):
			// Two CDI devices ask for one node, and each needs its own access to it.
			added.Access = unionAccess(have.Access, d.Access)
		case isCDI:
		case have.sameNode(d):
			b.widenAccess(have, d)
			return nil
		default:
			return NewConflict("device path", d.Path, have.Origin, d.Origin,
				fmt.Sprintf("%s %d:%d against %s %d:%d", have.Type, have.Major, have.Minor, d.Type, d.Major, d.Minor))
		}
		b.set.Devices = deleteKeyed(b.set.Devices, i, b.devices, key)
	}
	b.set.Devices = appendKeyed(b.set.Devices, added, b.devices, key)
	b.changes++
	return nil
}

// widenAccess gives a device of the set the access of another request for it. The device then counts as that request's:
// without it, the container would have less.
func (b *Builder) widenAccess(have, d *Device) {
	if access := unionAccess(have.Access, d.Access); access != have.Access {
		have.Access, have.Origin = access, d.Origin
		b.changes++
	}
}

// appendKeyed appends an item to a list, of which positions has the position of each key.
func appendKeyed[T any](list []T, item T, positions map[string]int, key func(*T) string) []T {
	positions[key(&item)] = len(list)
	return append(list, item)
}

// deleteKeyed deletes an item. Most items that are replaced are near the end.
func deleteKeyed[T any](list []T, at int, positions map[string]int, key func(*T) string) []T {
	delete(positions, key(&list[at]))
	list = slices.Delete(list, at, at+1)
	for i := at; i < len(list); i++ {
		positions[key(&list[i])] = i
	}
	return list
}

// AddMount adds a mount by the rules of AddDevice, with the destination as the key. The same
// source at the same destination is the same mount.
func (b *Builder) AddMount(m *Mount) error {
	if source, ok := b.existingSource(m); ok {
		if source == m.Source {
			return nil
		}
		return NewConflict("mount destination", m.Destination, existing, m.Origin,
			fmt.Sprintf("the container has %q mounted there, and the request has %q: remove the pod's mount or the request", source, m.Source))
	}
	key := func(m *Mount) string { return absolute(m.Destination) }
	for _, destination := range spellings(m.Destination) {
		i, ok := b.mounts[destination]
		if !ok {
			continue
		}
		have := &b.set.Mounts[i]
		switch {
		case m.Origin.Source == CDI && have.Origin.Source == CDI:
			// One may be below /run, the other below /var/run: the same directory in most images, but not in all.
			if destination == key(m) {
				b.set.Mounts = deleteKeyed(b.set.Mounts, i, b.mounts, key)
			}
		case have.sameMount(m):
			return nil
		default:
			return NewConflict("mount destination", m.Destination, have.Origin, m.Origin,
				fmt.Sprintf("%q against %q", have.Source, m.Source))
		}
	}
	added := *m
	added.Replaces = b.replaceableMount(m)
	b.set.Mounts = appendKeyed(b.set.Mounts, added, b.mounts, key)
	b.changes++
	return nil
}

// existingSource returns the source of the container's own mount at the destination of m, where m
// does not replace it.
func (b *Builder) existingSource(m *Mount) (source string, ok bool) {
	for i := range b.have.Mounts {
		h := &b.have.Mounts[i]
		if SameContainerPath(h.Destination, m.Destination) && !b.isReplaced(h) && !b.replacesMount(h, m) {
			return h.Source, true
		}
	}
	return "", false
}

// replaces reports whether an edit replaces what the container has.
func (b *Builder) replaces(o *Origin) bool { return b.have.CDIReplaces && o.Source == CDI }

// replacesMount reports whether an edit replaces a mount that the container has. The same mount stays.
func (b *Builder) replacesMount(have, m *Mount) bool {
	return EqualClean(have.Destination, m.Destination) && m.Origin.Source == CDI &&
		(b.have.CDIReplaces || have.Source != m.Source && slices.Contains(b.have.Replaceable, have.Destination))
}

// isReplaced reports whether a CDI mount of the set replaced a mount of the container.
func (b *Builder) isReplaced(have *Mount) bool {
	i, ok := b.mounts[absolute(have.Destination)]
	return ok && b.replacesMount(have, &b.set.Mounts[i])
}

// replaceableMount returns the destination of the container's replaceable mount in place of which m comes; "" for none.
func (b *Builder) replaceableMount(m *Mount) string {
	for i := range b.have.Mounts {
		if h := &b.have.Mounts[i]; !b.have.CDIReplaces && b.replacesMount(h, m) {
			return h.Destination
		}
	}
	return ""
}

// AddEnv adds a variable. A later CDI variable replaces an earlier one in place. A variable of
// another source with another value is an errdefs.ErrConflict. A variable that the container already has
// with this value is not added.
func (b *Builder) AddEnv(e *Env) error {
	if i, ok := b.env[e.Name]; ok {
		have := &b.set.Env[i]
		switch {
		case have.Value == e.Value:
			return nil
		case e.Origin.Source == CDI && have.Origin.Source == CDI:
			*have = *e
			b.changes++
			return nil
		}
		return NewConflict("environment variable", e.Name, have.Origin, e.Origin, "")
	}
	if at := LastEnv(b.have.Env, e.Name); at >= 0 && b.have.Env[at] == e.Text() {
		return nil
	}
	b.set.Env = appendKeyed(b.set.Env, *e, b.env, func(e *Env) string { return e.Name })
	b.changes++
	return nil
}

// AddHook adds a hook. It leaves out a hook that the container already has, because then the
// runtime injected the device itself. Equal hooks of several edits are all kept.
func (b *Builder) AddHook(h *Hook) {
	if slices.ContainsFunc(b.have.Hooks, func(have Hook) bool { return have.sameHook(h) }) {
		return
	}
	b.set.Hooks = append(b.set.Hooks, *h)
	b.changes++
}

// AddNetDevice adds a network device. The same host device under another name, or another host
// device under the same name, is an errdefs.ErrConflict.
func (b *Builder) AddNetDevice(n NetDevice) error {
	for _, have := range b.set.NetDevices {
		if have.HostName == n.HostName && have.Name == n.Name {
			return nil
		}
		if have.HostName == n.HostName || have.Name == n.Name {
			return NewConflict("network device", n.HostName, have.Origin, n.Origin, "")
		}
	}
	b.set.NetDevices = append(b.set.NetDevices, n)
	b.changes++
	return nil
}

// AddGID adds an additional group once. It leaves out group 0, as CDI prescribes, and groups that the process has.
func (b *Builder) AddGID(g GID) {
	if g.ID == 0 || slices.Contains(b.have.GIDs, g.ID) || slices.ContainsFunc(b.set.GIDs, func(h GID) bool { return h.ID == g.ID }) {
		return
	}
	b.set.GIDs = append(b.set.GIDs, g)
	b.changes++
}

// SetRDT sets the RDT configuration. The last one wins, as CDI prescribes.
func (b *Builder) SetRDT(r RDT) {
	b.set.RDT = &r
	b.changes++
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
