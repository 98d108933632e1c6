// SPDX-License-Identifier: Apache-2.0

package edits

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
)

// Existing is what the container has before any edit: given by the kubelet, the
// runtime, a device plugin or another NRI plugin. It is never replaced silently.
type Existing struct {
	Devices []Device
	Mounts  []Mount
	Hooks   []Hook
	Env     []string // NAME=value
	// MountAt gives the destination and source of mounts beyond Mounts, by number
	// from 0, from where they are kept already; false beyond the last. It must give
	// the same as long as the Existing is used.
	MountAt func(i int) (destination, source string, ok bool)
	// CDIReplaces lets a CDI device node or mount take the place of what is there,
	// as CDI's own library does: for an OCI spec that a person hands over. Without it
	// something else at the same place is a conflict.
	CDIReplaces bool
}

// Builder merges edits into one Set. The zero value merges into a container that
// has nothing; NewBuilder takes what it has.
type Builder struct {
	set     Set
	have    Existing
	changes int
}

// NewBuilder starts a Set for a container that has these things already.
func NewBuilder(have Existing) Builder { return Builder{have: have} }

// Reuse has the builder, which must be new, put the set into the memory of one that
// nobody uses any more.
func (b *Builder) Reuse(s *Set) {
	b.set.Env, b.set.Devices, b.set.Mounts, b.set.Hooks = s.Env[:0], s.Devices[:0], s.Mounts[:0], s.Hooks[:0]
}

// Set is the merged result. The Builder must not be used afterwards.
func (b *Builder) Set() Set {
	sortMounts(b.set.Mounts)
	return b.set
}

// Edits are the edits so far, in no order, which must not be changed.
func (b *Builder) Edits() *Set { return &b.set }

// Room makes room for as many more edits of each kind at once.
func (b *Builder) Room(env, devices, mounts, hooks int) {
	b.set.Env = slices.Grow(b.set.Env, env)
	b.set.Devices = slices.Grow(b.set.Devices, devices)
	b.set.Mounts = slices.Grow(b.set.Mounts, mounts)
	b.set.Hooks = slices.Grow(b.set.Hooks, hooks)
}

// Look shows the set as it is so far, which must not be changed or kept.
func (b *Builder) Look(at func(*Set) error) error { return at(&b.set) }

// Changes counts the edits that made a difference to the set.
func (b *Builder) Changes() int { return b.changes }

// Clone is a Builder in the same state that shares nothing that changes.
func (b *Builder) Clone() Builder {
	c := *b
	c.set.Env = slices.Clone(b.set.Env)
	c.set.Devices = slices.Clone(b.set.Devices)
	c.set.Mounts = slices.Clone(b.set.Mounts)
	c.set.Hooks = slices.Clone(b.set.Hooks)
	c.set.NetDevices = slices.Clone(b.set.NetDevices)
	c.set.GIDs = slices.Clone(b.set.GIDs)
	return c
}

// AddDevice adds a device node. A node the container has already is left as it
// is; another device at the same path is a *ConflictError, but a later CDI
// device replaces an earlier one, as CDI prescribes.
func (b *Builder) AddDevice(d Device) error {
	if b.replaces(d.Origin) {
		b.have.Devices = without(b.have.Devices, func(h *Device) bool { return sameSpelling(h.Path, d.Path) })
	}
	for i := range b.have.Devices {
		if h := &b.have.Devices[i]; SamePlace(h.Path, d.Path) {
			if h.same(&d) {
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
			if have.same(&d) {
				// One node that two devices ask for: each needs its own right to it.
				d.Access = unionAccess(have.Access, d.Access)
			}
			b.set.Devices = append(slices.Delete(b.set.Devices, i, i+1), d)
			b.changes++
			return nil
		case have.same(&d):
			have.Access = unionAccess(have.Access, d.Access)
			return nil
		}
		return &ConflictError{What: "device path", Name: d.Path, First: have.Origin, Second: d.Origin,
			Detail: fmt.Sprintf("%s %d:%d against %s %d:%d", have.Type, have.Major, have.Minor, d.Type, d.Major, d.Minor)}
	}
	b.set.Devices = append(b.set.Devices, d)
	b.changes++
	return nil
}

// AddMount adds a mount, under the rules of AddDevice with the destination as
// the key. The same source at the same destination is the same mount.
func (b *Builder) AddMount(m Mount) error {
	for i := 0; ; i++ {
		destination, source, ok := b.have.mount(i)
		if !ok {
			break
		}
		if !SamePlace(destination, m.Destination) || b.replaced(destination) ||
			b.replaces(m.Origin) && sameSpelling(destination, m.Destination) {
			continue
		}
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
			if !sameSpelling(have.Destination, m.Destination) {
				// /run and /var/run: one place in most images, and not in all.
				continue
			}
			b.set.Mounts = append(slices.Delete(b.set.Mounts, i, i+1), m)
			b.changes++
			return nil
		case have.same(&m):
			return nil
		}
		return &ConflictError{What: "mount destination", Name: m.Destination, First: have.Origin, Second: m.Origin,
			Detail: fmt.Sprintf("%q against %q", have.Source, m.Source)}
	}
	b.set.Mounts = append(b.set.Mounts, m)
	b.changes++
	return nil
}

// replaces reports whether an edit takes the place of what the container has.
func (b *Builder) replaces(o Origin) bool { return b.have.CDIReplaces && o.Source == CDI }

// mount is the container's mount of a number, from 0.
func (h *Existing) mount(i int) (destination, source string, ok bool) {
	if i < len(h.Mounts) {
		return h.Mounts[i].Destination, h.Mounts[i].Source, true
	}
	if h.MountAt == nil {
		return "", "", false
	}
	return h.MountAt(i - len(h.Mounts))
}

// replaced reports whether an edit of CDI took the place of a mount that the
// container has.
func (b *Builder) replaced(destination string) bool {
	if !b.have.CDIReplaces {
		return false
	}
	for i := range b.set.Mounts {
		if m := &b.set.Mounts[i]; m.Origin.Source == CDI && sameSpelling(m.Destination, destination) {
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

// AddEnv adds a variable. A later one of CDI replaces an earlier one in place;
// a variable of another source that is there with another value is a
// *ConflictError. A variable the container has with that value is left alone.
func (b *Builder) AddEnv(e Env) error {
	for i := range b.set.Env {
		have := &b.set.Env[i]
		if have.Name != e.Name {
			continue
		}
		switch {
		case have.Value == e.Value:
			return nil
		case e.Origin.Source == CDI && have.Origin.Source == CDI:
			*have = e
			b.changes++
			return nil
		}
		return &ConflictError{What: "environment variable", Name: e.Name, First: have.Origin, Second: e.Origin}
	}
	if b.hasEnv(e.Name, e.Value) {
		return nil
	}
	b.set.Env = append(b.set.Env, e)
	b.changes++
	return nil
}

// hasEnv reports whether the container has the variable with this value. Of two
// with one name the last counts.
func (b *Builder) hasEnv(name, value string) bool {
	for i := len(b.have.Env) - 1; i >= 0; i-- {
		switch kv, n := b.have.Env[i], len(name); {
		case len(kv) <= n:
			if kv == name {
				return false
			}
		case kv[n] == '=' && kv[:n] == name:
			return kv[n+1:] == value
		}
	}
	return false
}

// AddHook adds a hook, unless the container has the very same hook already:
// then the runtime injected the device itself. Hooks of the set accumulate.
func (b *Builder) AddHook(h Hook) {
	if slices.ContainsFunc(b.have.Hooks, func(have Hook) bool { return have.same(&h) }) {
		return
	}
	b.set.Hooks = append(b.set.Hooks, h)
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

// existing is the origin of what the container had before.
var existing = Origin{Request: "the container as the runtime made it"}

// ConflictError is two edits that want the same place. It unwraps to
// errdefs.ErrConflict.
type ConflictError struct {
	What, Name    string
	First, Second Origin
	Detail        string
}

func (e *ConflictError) Error() string {
	s := fmt.Sprintf("%s %q is claimed twice: by %s and by %s", e.What, e.Name, e.First, e.Second)
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// Unwrap makes the error an errdefs.ErrConflict.
func (e *ConflictError) Unwrap() error { return errdefs.ErrConflict }

// cleanPath makes two spellings of one container path equal: images have
// /var/run as a symlink to /run.
func cleanPath(p string) string {
	if p == "" || p[0] != '/' {
		p = "/" + p
	}
	if !isClean(p) {
		p = path.Clean(p)
	}
	if len(p) >= len("/var/run") && p[:len("/var/run")] == "/var/run" && (len(p) == len("/var/run") || p[len("/var/run")] == '/') {
		return p[len("/var"):]
	}
	return p
}

// isClean reports that path.Clean would change nothing; false is no answer.
func isClean(p string) bool {
	return !strings.Contains(p, "//") && !strings.Contains(p, "/.") && (len(p) == 1 || p[len(p)-1] != '/')
}

// Clean is a container path in one spelling: what [SamePlace] compares.
func Clean(p string) string { return cleanPath(p) }

// sameSpelling reports whether two paths are the same but for slashes and dots.
func sameSpelling(a, b string) bool {
	return a == b || !differ(a, b) && path.Clean(a) == path.Clean(b)
}

// differ reports that two paths are not of one place, without cleaning them; false
// is no answer. Most paths differ in their last byte already, which cleaning leaves
// alone where it is neither a slash nor a dot.
func differ(a, b string) bool {
	if a == "" || b == "" {
		return false
	}
	x, y := a[len(a)-1], b[len(b)-1]
	return x != y && x != '/' && x != '.' && y != '/' && y != '.'
}

// SamePlace reports whether two container paths mean the same place under the
// convention that /var/run is /run.
func SamePlace(a, b string) bool {
	return a == b || !differ(a, b) && cleanPath(a) == cleanPath(b)
}

// Within reports whether path p is dir or lies below it, under the convention
// of [SamePlace].
func Within(dir, p string) bool { return WithinClean(cleanPath(dir), cleanPath(p)) }

// WithinClean is Within for paths that are [Clean].
func WithinClean(dir, p string) bool {
	return dir == p || dir == "/" || len(p) > len(dir) && p[:len(dir)] == dir && p[len(dir)] == '/'
}

// Depth is the number of slashes in the clean spelling (path.Clean) of a container
// path: by it mounts are put in order. clean tells that the path is absolute and
// spelled like that already; false is no answer.
func Depth(p string) (depth int, clean bool) {
	if n := slashes(p); n > 0 {
		return n, true
	}
	return strings.Count(path.Clean(p), "/"), false
}

// slashes is the number of them in an absolute path that is clean; 0 is no answer.
func slashes(p string) int {
	n := 0
	for i := range len(p) {
		if p[i] != '/' {
			continue
		}
		if i+1 == len(p) || p[i+1] == '/' || p[i+1] == '.' {
			return 0
		}
		n++
	}
	if n == 0 || p[0] != '/' {
		return 0
	}
	return n
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
