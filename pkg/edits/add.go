// SPDX-License-Identifier: Apache-2.0

package edits

import (
	"fmt"
	"slices"
	"strings"
)

// AddDevice adds a device node. A node the container has already is left as it
// is; another device at the same path is a *ConflictError, but a later CDI
// device replaces an earlier one, as CDI prescribes.
func (b *Builder) AddDevice(d *Device) error {
	if b.replaces(&d.Origin) {
		b.have.Devices = without(b.have.Devices, func(h *Device) bool { return SameSpelling(h.Path, d.Path) })
	}
	for i := range b.have.Devices {
		if h := &b.have.Devices[i]; SamePlace(h.Path, d.Path) {
			if h.same(d) {
				return nil
			}
			return &ConflictError{What: "device path", Name: d.Path, First: existing, Second: d.Origin,
				Detail: fmt.Sprintf("it is %s %d:%d there, and %s %d:%d is to be put there", h.Type, h.Major, h.Minor, d.Type, d.Major, d.Minor)}
		}
	}
	for i := range b.set.Devices {
		have := &b.set.Devices[i]
		if !SamePlace(have.Path, d.Path) {
			continue
		}
		switch {
		case d.Origin.Source == CDI && have.Origin.Source == CDI:
			later := *d
			if have.same(d) {
				// One node that two devices ask for: each needs its own right to it.
				later.Access = unionAccess(have.Access, d.Access)
			}
			b.set.Devices = append(slices.Delete(b.set.Devices, i, i+1), later)
			b.changes++
			return nil
		case have.same(d):
			have.Access = unionAccess(have.Access, d.Access)
			return nil
		}
		return &ConflictError{What: "device path", Name: d.Path, First: have.Origin, Second: d.Origin,
			Detail: fmt.Sprintf("%s %d:%d against %s %d:%d", have.Type, have.Major, have.Minor, d.Type, d.Major, d.Minor)}
	}
	b.set.Devices = append(b.set.Devices, *d)
	b.changes++
	return nil
}

// AddMount adds a mount, under the rules of AddDevice with the destination as
// the key. The same source at the same destination is the same mount.
func (b *Builder) AddMount(m *Mount) error {
	if source, ok := b.mountedAt(m); ok {
		if source == m.Source {
			return nil
		}
		return &ConflictError{What: "mount destination", Name: m.Destination, First: existing, Second: m.Origin,
			Detail: fmt.Sprintf("%q is mounted there, and %q is to be mounted there", source, m.Source)}
	}
	for i := range b.set.Mounts {
		have := &b.set.Mounts[i]
		if !SamePlace(have.Destination, m.Destination) {
			continue
		}
		switch {
		case m.Origin.Source == CDI && have.Origin.Source == CDI:
			if !SameSpelling(have.Destination, m.Destination) {
				// /run and /var/run: one place in most images, and not in all.
				continue
			}
			b.set.Mounts = append(slices.Delete(b.set.Mounts, i, i+1), *m)
			b.changes++
			return nil
		case have.same(m):
			return nil
		}
		return &ConflictError{What: "mount destination", Name: m.Destination, First: have.Origin, Second: m.Origin,
			Detail: fmt.Sprintf("%q against %q", have.Source, m.Source)}
	}
	b.set.Mounts = append(b.set.Mounts, *m)
	b.changes++
	return nil
}

// mountedAt is the source of the container's mount at the destination of another,
// which does not take its place.
func (b *Builder) mountedAt(m *Mount) (source string, ok bool) {
	stays := func(destination string) bool {
		return SamePlace(destination, m.Destination) && !b.replaced(destination) &&
			!(b.replaces(&m.Origin) && SameSpelling(destination, m.Destination))
	}
	for i := range b.have.Mounts {
		if h := &b.have.Mounts[i]; stays(h.Destination) {
			return h.Source, true
		}
	}
	if b.have.More == nil {
		return "", false
	}
	for i := 0; ; i++ {
		destination, source, ok := b.have.More.MountAt(i)
		if !ok || !differ(destination, m.Destination) && stays(destination) {
			return source, ok
		}
	}
}

// replaces reports whether an edit takes the place of what the container has.
func (b *Builder) replaces(o *Origin) bool { return b.have.CDIReplaces && o.Source == CDI }

// replaced reports whether an edit of CDI took the place of a mount that the
// container has.
func (b *Builder) replaced(destination string) bool {
	if !b.have.CDIReplaces {
		return false
	}
	for i := range b.set.Mounts {
		if m := &b.set.Mounts[i]; m.Origin.Source == CDI && SameSpelling(m.Destination, destination) {
			return true
		}
	}
	return false
}

// without is list less what matches. The list itself, which a Clone may share, is
// not changed.
func without[T any](list []T, match func(*T) bool) []T {
	for i := range list {
		if match(&list[i]) {
			return slices.DeleteFunc(slices.Clone(list), func(x T) bool { return match(&x) })
		}
	}
	return list
}

// AddEnv adds a variable. A later one of CDI replaces an earlier one in place;
// a variable of another source that is there with another value is a
// *ConflictError. A variable the container has with that value is left alone.
func (b *Builder) AddEnv(e *Env) error {
	for i := range b.set.Env {
		have := &b.set.Env[i]
		if have.Name != e.Name {
			continue
		}
		switch {
		case have.Value == e.Value:
			return nil
		case e.Origin.Source == CDI && have.Origin.Source == CDI:
			*have = *e
			b.changes++
			return nil
		}
		return &ConflictError{What: "environment variable", Name: e.Name, First: have.Origin, Second: e.Origin}
	}
	if b.hasEnv(e.Name, e.Value) {
		return nil
	}
	b.set.Env = append(b.set.Env, *e)
	b.changes++
	return nil
}

// hasEnv reports whether the container has the variable with this value.
func (b *Builder) hasEnv(name, value string) bool {
	at := b.names.Last(name)
	if at < 0 {
		return false
	}
	kv, n := b.have.Env[at], len(name)
	return len(kv) > n && kv[n+1:] == value
}

// AddHook adds a hook, unless the container has the very same hook already:
// then the runtime injected the device itself. Hooks of the set accumulate.
func (b *Builder) AddHook(h *Hook) {
	if slices.ContainsFunc(b.have.Hooks, func(have Hook) bool { return have.same(h) }) {
		return
	}
	b.set.Hooks = append(b.set.Hooks, *h)
	b.changes++
}

// AddNetDevice adds a network device. The same host device, or another one of
// the same name in the container, is a *ConflictError.
func (b *Builder) AddNetDevice(n NetDevice) error {
	for _, have := range b.set.NetDevices {
		if have.HostName == n.HostName && have.Name == n.Name {
			return nil
		}
		if have.HostName == n.HostName || have.Name == n.Name {
			return &ConflictError{What: "network device", Name: n.HostName, First: have.Origin, Second: n.Origin}
		}
	}
	b.set.NetDevices = append(b.set.NetDevices, n)
	b.changes++
	return nil
}

// AddGID adds an additional group once. Group 0 is left out, as CDI prescribes.
func (b *Builder) AddGID(g GID) {
	if g.ID == 0 || slices.ContainsFunc(b.set.GIDs, func(h GID) bool { return h.ID == g.ID }) {
		return
	}
	b.set.GIDs = append(b.set.GIDs, g)
	b.changes++
}

// SetRDT sets the RDT configuration; the last one wins, as CDI prescribes.
func (b *Builder) SetRDT(r RDT) {
	b.set.RDT = &r
	b.changes++
}

// unionAccess joins two access strings in the order r, w, m. An empty string
// means the target's default and stays so.
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
