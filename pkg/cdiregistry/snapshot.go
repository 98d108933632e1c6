// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"errors"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Snapshot is an immutable view of the spec files. It may be kept and used by any
// number of goroutines.
type Snapshot struct {
	generation uint64
	dirs       []dirView
	table      table
	files      int // in all directories
	kinds      trie[nothing, *kindSet]
	conflicts  trie[nothing, conflictName]
	// volatile are the files that announcements do not cover.
	volatile []*entry
}

// dirView is one directory in a snapshot.
type dirView struct {
	dir     *specDir
	id      dirIdentity
	watched bool
	rescan  bool // exists, and is not watched or could not be listed
	err     error
	files   trie[*table, fileID]
	failed  trie[*table, fileID] // those of files that are refused
}

// entries yields the files of a list in no order.
func (s *Snapshot) entries(list *trie[*table, fileID]) iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for id := range list.all() {
			if !yield(s.table.at(id)) {
				return
			}
		}
	}
}

// file is a file of directory i by its name there; nil when it is not known.
func (s *Snapshot) file(i int, name string) *entry {
	if s == nil {
		return nil
	}
	id, ok := s.dirs[i].files.get(&s.table, name)
	if !ok {
		return nil
	}
	return s.table.at(id)
}

// conflictName is a device that is declared twice at one priority.
type conflictName struct{ kind, name string }

func (c conflictName) key(nothing) string { return c.qualified() }
func (c conflictName) qualified() string  { return c.kind + "=" + c.name }

func newSnapshot(r *Registry) *Snapshot {
	s := &Snapshot{
		dirs:      make([]dirView, len(r.dirs)),
		kinds:     trie[nothing, *kindSet]{seed: r.seed},
		conflicts: trie[nothing, conflictName]{seed: r.seed},
	}
	for i, d := range r.dirs {
		// No directory has this identity, so that the first look finds it changed.
		none := trie[*table, fileID]{seed: r.seed}
		s.dirs[i] = dirView{dir: d, id: dirIdentity{errno: unix.EINPROGRESS}, files: none, failed: none}
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
	d, err := s.declaration(qualifiedName, kind, name)
	if err != nil {
		return nil, err
	}
	return d.device(qualifiedName), nil
}

// declaration is the one that counts.
func (s *Snapshot) declaration(qualifiedName, kind, name string) (declaration, error) {
	if k, ok := s.kinds.get(nothing{}, kind); ok {
		if sl, ok := k.devices.get(&s.table, name); ok {
			best, n := k.best(&s.table, sl)
			if n > 1 {
				return declaration{}, k.declarations(&s.table, sl).conflict(qualifiedName, best.e.dir)
			}
			return best, nil
		}
	}
	if err := checkQualified(qualifiedName); err != nil {
		return declaration{}, &NameError{Name: qualifiedName, Rule: err.Error()}
	}
	return declaration{}, s.notFound(qualifiedName, kind, name)
}

// Kind is every usable device of a kind, in natural order of the names. None is a
// *NotFoundError.
func (s *Snapshot) Kind(kind string) ([]*Device, error) {
	var out []*Device
	if k, ok := s.kinds.get(nothing{}, kind); ok {
		for _, d := range s.usable(k) {
			out = append(out, d.device(kind+"="+d.name()))
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

// usable are the devices of a kind without conflict, in natural order.
func (s *Snapshot) usable(k *kindSet) []declaration {
	out := make([]declaration, 0, k.devices.len)
	for sl := range k.devices.all() {
		if best, n := k.best(&s.table, sl); n == 1 {
			out = append(out, best)
		}
	}
	slices.SortFunc(out, func(a, b declaration) int { return naturalCompare(a.name(), b.name()) })
	return out
}

// Devices are the qualified names of all usable devices, sorted.
func (s *Snapshot) Devices() []string {
	var out []string
	for k := range s.kinds.all() {
		for sl := range k.devices.all() {
			if d, n := k.best(&s.table, sl); n == 1 {
				out = append(out, k.name+"="+d.name())
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
		all := s.conflicting(c)
		for _, d := range all {
			if err := all.conflict(c.qualified(), d.e.dir); len(err.Files) > 1 {
				conflicts[d.e] = append(conflicts[d.e], err)
			}
		}
	}
	var out []File
	for i := range s.dirs {
		from := len(out)
		for e := range s.entries(&s.dirs[i].files) {
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
