// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"tags.cncf.io/container-device-interface/pkg/parser"
)

// Snapshot is an immutable view of the spec files. It may be kept and used by any
// number of goroutines.
type Snapshot struct {
	generation uint64
	dirs       []dirView
	kinds      trie[*kindSet]
	conflicts  trie[conflictName]
	// volatile are the files that announcements do not cover.
	volatile []*entry
}

// dirView is one directory in a snapshot.
type dirView struct {
	dir     *specDir
	id      dirIdentity
	watched bool
	rescan  bool // exists and is not watched
	err     error
	files   trie[*entry]
	failed  trie[*entry] // those of files that are refused
}

// kindSet is what is declared of one kind.
type kindSet struct {
	name    string
	devices trie[slot]
	files   int
	owner   edit
}

func (k *kindSet) key() string { return k.name }

// slot is one declaration of a device, with those of the same name in other files. A
// trie has them by value: a snapshot has many, and each pointer costs the garbage
// collector.
type slot struct {
	e    *entry
	rest *slot
	i    uint32
}

func (s slot) key() string { return s.e.blob.deviceName(int(s.i)) }

// alone is the slot in memory of its own.
func (s slot) alone() *slot { return &s }

// without is the slot less the declaration in e; nil when there is no other.
func (s *slot) without(e *entry) *slot {
	if s == nil {
		return nil
	}
	if s.e == e {
		return s.rest
	}
	return &slot{e: s.e, i: s.i, rest: s.rest.without(e)}
}

// best is a declaration of the highest priority, and how many have it.
func (s slot) best() (slot, int) {
	best, n := s, 1
	for o := s.rest; o != nil; o = o.rest {
		switch {
		case o.e.dir.prio > best.e.dir.prio:
			best, n = *o, 1
		case o.e.dir.prio == best.e.dir.prio:
			n++
		}
	}
	return best, n
}

// clashes tells that two declarations have the same priority, the highest or not.
func (s slot) clashes() bool {
	for a := &s; a != nil; a = a.rest {
		for b := a.rest; b != nil; b = b.rest {
			if a.e.dir == b.e.dir {
				return true
			}
		}
	}
	return false
}

// conflictName is a device that is declared twice at one priority.
type conflictName struct{ kind, name string }

func (c conflictName) key() string { return c.kind + "=" + c.name }

func newSnapshot(r *Registry) *Snapshot {
	s := &Snapshot{
		dirs:      make([]dirView, len(r.dirs)),
		kinds:     trie[*kindSet]{seed: r.seed},
		conflicts: trie[conflictName]{seed: r.seed},
	}
	for i, d := range r.dirs {
		// No directory has this identity, so that the first look finds it changed.
		s.dirs[i] = dirView{dir: d, id: dirIdentity{errno: unix.EINPROGRESS}, files: trie[*entry]{seed: r.seed}, failed: trie[*entry]{seed: r.seed}}
	}
	return s
}

// Generation grows with every change, so that what was made from a snapshot can
// be kept as long as it is the same.
func (s *Snapshot) Generation() uint64 { return s.generation }

// Device is the device of a qualified name, "vendor.com/class=name". The errors
// are *NameError, *NotFoundError and *ConflictError.
func (s *Snapshot) Device(qualifiedName string) (*Device, error) {
	kind, name, _ := strings.Cut(qualifiedName, "=")
	sl, err := s.slot(qualifiedName, kind, name)
	if err != nil {
		return nil, err
	}
	return sl.device(qualifiedName), nil
}

// slot is the declaration that counts.
func (s *Snapshot) slot(qualifiedName, kind, name string) (slot, error) {
	if k, ok := s.kinds.get(kind); ok {
		if sl, ok := k.devices.get(name); ok {
			best, n := sl.best()
			if n > 1 {
				return slot{}, sl.conflict(qualifiedName, best.e.dir)
			}
			return best, nil
		}
	}
	if _, _, _, err := parser.ParseQualifiedName(qualifiedName); err != nil {
		if vendor, _, _ := parser.ParseDevice(qualifiedName); vendor == "" {
			return slot{}, &NameError{Name: qualifiedName, Rule: "must be a vendor, a class and a name, such as vendor.com/class=name"}
		}
		return slot{}, &NameError{Name: qualifiedName, Rule: err.Error()}
	}
	return slot{}, s.notFound(qualifiedName, kind, name)
}

func (s slot) device(qualifiedName string) *Device {
	d := &Device{Name: qualifiedName, File: s.e.path(), Priority: s.e.dir.prio}
	s.e.blob.fill(int(s.i), d)
	return d
}

// conflict is the error of the declarations in one directory.
func (s slot) conflict(qualifiedName string, d *specDir) *ConflictError {
	e := &ConflictError{Name: qualifiedName}
	for o := &s; o != nil; o = o.rest {
		if o.e.dir == d {
			e.Files = append(e.Files, o.e.path())
		}
	}
	slices.Sort(e.Files)
	best, n := s.best()
	e.Shadowed = n == 1 && best.e.dir != d
	return e
}

// Kind is every usable device of a kind, in natural order of the names. None is a
// *NotFoundError.
func (s *Snapshot) Kind(kind string) ([]*Device, error) {
	var out []*Device
	if k, ok := s.kinds.get(kind); ok {
		for _, sl := range k.usable() {
			out = append(out, sl.device(kind+"="+sl.key()))
		}
	}
	if len(out) == 0 {
		if err := checkKind(kind); err != nil {
			return nil, &NameError{Name: kind, Rule: err.Error()}
		}
		return nil, s.notFound(kind, kind, "")
	}
	return out, nil
}

// usable are the devices without conflict, in natural order.
func (k *kindSet) usable() []slot {
	out := make([]slot, 0, k.devices.len)
	for sl := range k.devices.all() {
		if best, n := sl.best(); n == 1 {
			out = append(out, best)
		}
	}
	slices.SortFunc(out, func(a, b slot) int { return naturalCompare(a.key(), b.key()) })
	return out
}

// Devices are the qualified names of all usable devices, sorted.
func (s *Snapshot) Devices() []string {
	var out []string
	for k := range s.kinds.all() {
		for sl := range k.devices.all() {
			if _, n := sl.best(); n == 1 {
				out = append(out, k.name+"="+sl.key())
			}
		}
	}
	slices.Sort(out)
	return out
}

// Kinds are the kinds that usable spec files declare, sorted.
func (s *Snapshot) Kinds() []string {
	out := make([]string, 0, s.kinds.len)
	for k := range s.kinds.all() {
		out = append(out, k.name)
	}
	slices.Sort(out)
	return out
}

// Files are the spec files, refused ones among them, by priority and path.
func (s *Snapshot) Files() []File {
	conflicts := map[*entry][]error{}
	for c := range s.conflicts.all() {
		k, _ := s.kinds.get(c.kind)
		sl, _ := k.devices.get(c.name)
		for o := &sl; o != nil; o = o.rest {
			if err := sl.conflict(c.key(), o.e.dir); len(err.Files) > 1 {
				conflicts[o.e] = append(conflicts[o.e], err)
			}
		}
	}
	var out []File
	for i := range s.dirs {
		from := len(out)
		for e := range s.dirs[i].files.all() {
			out = append(out, e.describe(conflicts[e]))
		}
		slices.SortFunc(out[from:], func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	}
	return out
}

func (e *entry) describe(conflicts []error) File {
	f := File{Path: e.path(), Priority: e.dir.prio, Kind: e.kind(), Size: e.id.size}
	if e.id.mtime != 0 {
		f.ModTime = time.Unix(0, e.id.mtime)
	}
	for i := range e.devices() {
		f.Devices = append(f.Devices, e.deviceName(i))
	}
	slices.SortFunc(conflicts, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	switch {
	case e.err != nil:
		f.Err = &e.err.SpecError
	case len(conflicts) == 1:
		f.Err = conflicts[0]
	case len(conflicts) > 1:
		f.Err = errors.Join(conflicts...)
	}
	return f
}

// Dirs are the spec directories in rising priority.
func (s *Snapshot) Dirs() []Dir {
	out := make([]Dir, len(s.dirs))
	for i := range s.dirs {
		v := &s.dirs[i]
		out[i] = Dir{Path: v.dir.path, Priority: i, Watched: v.watched, Missing: v.id.errno == unix.ENOENT}
		if v.err != nil && !out[i].Missing {
			out[i].Err = &DirError{Path: v.dir.path, Err: v.err}
		}
	}
	return out
}

// DirError is why a spec directory could not be read. It unwraps to the cause.
type DirError struct {
	Path string
	Err  error
}

// Error names the directory and the cause.
func (e *DirError) Error() string {
	var no unix.Errno
	if errors.As(e.Err, &no) {
		return "read CDI spec directory \"" + e.Path + "\": " + no.Error()
	}
	return "read CDI spec directory \"" + e.Path + "\": " + e.Err.Error()
}

// Unwrap is the cause, or errdefs.ErrUnavailable.
func (e *DirError) Unwrap() error {
	if e.Err == nil {
		return errdefs.ErrUnavailable
	}
	return e.Err
}
