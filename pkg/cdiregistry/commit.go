// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"slices"
	"strings"
)

// commit publishes what a batch loaded. It runs under the lock and does no I/O.
func (r *Registry) commit(b *batch) {
	c := change{r: r, old: r.cur.Load(), seq: b.seq}
	for _, s := range b.scans {
		c.scanned(s)
	}
	for _, l := range b.loaded {
		if r.committed[l.fileKey] <= b.seq && r.scanned[l.dir] <= b.seq {
			c.file(l.fileKey, l.entry)
		}
	}
	for _, i := range b.again {
		// What was announced of it is not known: a shortage of descriptors may pass, and
		// nobody announces that.
		r.states[i].stale = true
		if !c.view(i).rescan {
			c.begin()
			c.view(i).rescan = true
		}
	}
	r.open = slices.DeleteFunc(r.open, func(o *batch) bool { return o == b })
	r.remember(b)
	if c.new != nil {
		r.cur.Store(c.finish())
	}
}

// remember notes what a batch published, as long as older ones may come later.
func (r *Registry) remember(b *batch) {
	if len(r.open) == 0 {
		clear(r.committed)
		clear(r.scanned)
		return
	}
	for _, s := range b.scans {
		r.scanned[s.i] = max(r.scanned[s.i], b.seq)
	}
	if r.committed == nil {
		r.committed = map[fileKey]uint64{}
	}
	for _, l := range b.loaded {
		r.committed[l.fileKey] = max(r.committed[l.fileKey], b.seq)
	}
}

// change makes one snapshot out of another. The new one is begun at the first
// difference.
type change struct {
	r       *Registry
	seq     uint64
	old     *Snapshot
	new     *Snapshot
	e       edit
	dropped map[*entry]struct{} // that were in the list of volatile ones
}

// begin gives the snapshot to change.
func (c *change) begin() *Snapshot {
	if c.new == nil {
		s := *c.old
		s.generation++
		s.dirs = slices.Clone(s.dirs)
		s.volatile = slices.Clip(s.volatile)
		c.new, c.e = &s, edit(s.generation)
	}
	return c.new
}

// snapshot is the one that is made, or the old one as long as there is no difference.
func (c *change) snapshot() *Snapshot {
	if c.new != nil {
		return c.new
	}
	return c.old
}

func (c *change) view(i int) *dirView { return &c.snapshot().dirs[i] }

// scanned takes over the state of a directory and drops the files that are gone.
func (c *change) scanned(s *scan) {
	if c.r.scanned[s.i] > c.seq {
		return
	}
	v := c.view(s.i)
	rescan := !s.watched && s.id.errno == 0 || s.again()
	if v.id != s.id || v.rescan != rescan || v.watched != s.watched || !sameError(v.err, s.err) {
		c.begin()
		v = c.view(s.i)
		v.id, v.rescan, v.watched, v.err = s.id, rescan, s.watched, s.err
	}
	var gone []string
	for e := range c.snapshot().entries(&v.files) {
		if _, ok := s.names[e.key()]; !ok && e.seq < c.seq {
			gone = append(gone, e.key())
		}
	}
	for _, name := range gone {
		if k := (fileKey{s.i, name}); c.r.committed[k] <= c.seq {
			c.file(k, nil)
		}
	}
}

func sameError(a, b error) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return a.Error() == b.Error()
}

// file puts e in the place of what is known of a file; nil takes it out.
func (c *change) file(k fileKey, e *entry) {
	s := c.snapshot()
	id, known := s.dirs[k.dir].files.get(&s.table, k.name)
	var old *entry
	if known {
		old = s.table.at(id)
	}
	if !known && e == nil || known && e != nil && old.same(e) {
		return
	}
	s = c.begin()
	v := &s.dirs[k.dir]
	if known {
		c.unindex(id)
		if old.err != nil {
			v.failed.remove(&s.table, c.e, k.name)
		}
		if old.check != checkNone {
			if c.dropped == nil {
				c.dropped = map[*entry]struct{}{}
			}
			c.dropped[old] = struct{}{}
		}
	}
	if e == nil {
		v.files.remove(&s.table, c.e, k.name)
		s.table.set(c.e, id, nil)
		s.files--
		c.r.ids.giveBack(id)
		return
	}
	if !known {
		id = c.r.ids.take()
		s.files++
	}
	e.seq = c.seq
	s.table.set(c.e, id, e)
	v.files.put(&s.table, c.e, id)
	if e.check != checkNone {
		s.volatile = append(s.volatile, e)
	}
	if e.err != nil {
		v.failed.put(&s.table, c.e, id)
		return
	}
	c.index(id)
}

func (c *change) finish() *Snapshot {
	if len(c.dropped) > 0 {
		kept := make([]*entry, 0, len(c.new.volatile))
		for _, e := range c.new.volatile {
			if _, ok := c.dropped[e]; !ok {
				kept = append(kept, e)
			}
		}
		c.new.volatile = kept
	}
	return c.new
}

// index adds the devices of a usable file to their kind.
func (c *change) index(id fileID) {
	e := c.new.table.at(id)
	k := c.kind(e.kind())
	k.files++
	in := &c.new.table
	for i := range e.devices() {
		name, s := e.deviceName(i), slot{file: id, i: uint32(i)}
		if known, ok := k.devices.get(in, name); ok {
			c.share(k, name, append(slices.Clone(k.slots(in, known)), s))
		} else {
			k.devices.put(in, c.e, s)
		}
	}
}

// unindex takes them out.
func (c *change) unindex(id fileID) {
	in := &c.new.table
	e := in.at(id)
	if e.err != nil {
		return
	}
	k := c.kind(e.kind())
	k.files--
	for i := range e.devices() {
		name := e.deviceName(i)
		if known, _ := k.devices.get(in, name); known.single() {
			k.devices.remove(in, c.e, name)
		} else {
			c.share(k, name, slices.DeleteFunc(slices.Clone(k.slots(in, known)), func(s slot) bool { return s.file == id }))
		}
	}
	if k.files == 0 {
		c.new.kinds.remove(nothing{}, c.e, k.name)
	}
}

// share makes these, at least one, the slots of a name that several files declare or
// declared, and keeps the list of those in conflict.
func (c *change) share(k *kindSet, name string, slots []slot) {
	name = strings.Clone(name) // so that it holds no file
	in := &c.new.table
	k.set(in, c.e, name, slots)
	all := make(declarations, len(slots))
	for i, s := range slots {
		all[i] = in.declared(s)
	}
	if all.clash() {
		c.new.conflicts.put(nothing{}, c.e, conflictName{k.name, name})
	} else if c.new.conflicts.len > 0 {
		c.new.conflicts.remove(nothing{}, c.e, k.name+"="+name)
	}
}

// kind gives the kind to change, a copy when it is published.
func (c *change) kind(name string) *kindSet {
	s := c.begin()
	k, ok := s.kinds.get(nothing{}, name)
	switch {
	case !ok:
		// A copy of the name, so that the kind does not hold the first file.
		k = &kindSet{name: string([]byte(name)), devices: trie[*table, slot]{seed: c.r.seed}, shared: trie[nothing, sharedName]{seed: c.r.seed}}
	case k.owner == c.e:
		return k
	default:
		cp := *k
		k = &cp
	}
	k.owner = c.e
	s.kinds.put(nothing{}, c.e, k)
	return k
}
