// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"fmt"
	"slices"
)

// update collects what differs between the current snapshot and the next one.
type update struct {
	registry *Registry
	changed  bool
	dirs     []dirView
	files    [][]change[*specFile] // of each directory
	devices  []change[declaration]
}

// change adds an item to a sorted list, or removes it.
type change[T any] struct {
	item   T
	remove bool
}

// snapshot returns the next snapshot, which is the current one where nothing differs.
func (u *update) snapshot() *Snapshot {
	if !u.changed {
		return u.registry.current
	}
	for i := range u.dirs {
		u.dirs[i].files = applyChanges(u.dirs[i].files, u.files[i], compareFiles)
	}
	return &Snapshot{dirs: u.dirs, devices: applyChanges(u.registry.current.devices, u.devices, compareDeclarations)}
}

// applyChanges returns a changed copy of a sorted list. It searches for the place of each change:
// comparing all items of a long list would take longer than copying it.
func applyChanges[T any](list []T, changes []change[T], compare func(a, b T) int) []T {
	if len(changes) == 0 {
		return list
	}
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

// setDirectory takes over the state of a directory; err is why it cannot be read.
func (u *update) setDirectory(d *specDir, err error) {
	old := &u.dirs[d.priority]
	view := dirView{path: d.path, id: d.id, listed: true, watched: d.watch != noWatch, err: err, files: old.files}
	if !old.listed || old.id != view.id || old.watched != view.watched || fmt.Sprint(old.err) != fmt.Sprint(err) {
		*old, u.changed = view, true
	}
}

// setFile replaces what is known of a file; nil removes it. It is called once for a name.
func (u *update) setFile(d *specDir, name string, f *specFile) {
	key := fileKey{d.priority, name}
	delete(u.registry.recheck, key)
	if f != nil && (f.revalidate != revalidateNone || f.mtimeTooRecent) {
		u.registry.recheck[key] = f
	}
	old := u.dirs[d.priority].findFile(name)
	if old == f || old != nil && f != nil && old.equal(f) {
		return
	}
	u.changed = true
	u.change(old, true)
	u.change(f, false)
}

// change adds or removes a file, which may be nil, and its devices.
func (u *update) change(f *specFile, remove bool) {
	if f == nil {
		return
	}
	u.files[f.dir.priority] = append(u.files[f.dir.priority], change[*specFile]{f, remove})
	for i := range f.devices() {
		u.devices = append(u.devices, change[declaration]{declaration{f, i}, remove})
	}
}
