// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// update collects the differences between the current snapshot and the next one.
type update struct {
	current *Snapshot
	changed bool
	dirs    []Dir
	files   []change[*specFile]
	devices []change[declaration]
}

// change adds an item to a sorted list, or removes it.
type change[T any] struct {
	item   T
	remove bool
}

// snapshot returns the next snapshot, or the current one if nothing differs.
func (u *update) snapshot() *Snapshot {
	if !u.changed {
		return u.current
	}
	return &Snapshot{
		dirs:    u.dirs,
		files:   applyChanges(u.current.files, u.files, compareFiles),
		devices: applyChanges(u.current.devices, u.devices, compareDeclarations),
		host:    u.current.host, extensions: u.current.extensions,
	}
}

// applyChanges returns a changed copy of a sorted list. It searches for the place of each change, because a
// comparison of all items of a long list would take longer than copying the list.
func applyChanges[T any](list []T, changes []change[T], compare func(a, b T) int) []T {
	slices.SortFunc(changes, func(a, b change[T]) int { return compare(a.item, b.item) })
	out := make([]T, 0, len(list)+len(changes))
	for _, c := range changes {
		i, _ := slices.BinarySearchFunc(list, c.item, compare)
		out, list = append(out, list[:i]...), list[i:]
		if c.remove {
			list = list[1:]
		} else {
			out = append(out, c.item)
		}
	}
	return append(out, list...)
}

// setDirectory records the state of a directory; err is the error of reading it.
func (u *update) setDirectory(d *specDir, err error) {
	dir := Dir{Path: d.path, Priority: d.priority, Missing: d.id.errno == unix.ENOENT, Watched: d.watch != noWatch}
	if err != nil && !dir.Missing {
		dir.Err = &DirError{Path: d.path, Err: err}
	}
	if fmt.Sprint(dir) != fmt.Sprint(u.dirs[d.priority]) {
		u.dirs[d.priority], u.changed = dir, true
	}
}

// setFile replaces the state of a file; nil removes the file. The caller calls it once for a name.
func (u *update) setFile(d *specDir, name string, f *specFile) {
	old := d.files[name]
	delete(d.files, name)
	delete(d.recheck, name)
	if f != nil {
		d.files[name] = f
	}
	if f != nil && (f.isLinked || f.id == (identity{})) {
		d.recheck[name] = f
	}
	if old == f || old != nil && f != nil && old.equal(f) {
		return
	}
	u.changed = true
	u.change(old, true)
	u.change(f, false)
}

// change adds or removes a file, which can be nil, and its devices.
func (u *update) change(f *specFile, remove bool) {
	if f == nil {
		return
	}
	u.files = append(u.files, change[*specFile]{f, remove})
	for i, device := range f.spec.Devices {
		u.devices = append(u.devices, change[declaration]{declaration{f.kind + "=" + device.Name, f, i}, remove})
	}
}
