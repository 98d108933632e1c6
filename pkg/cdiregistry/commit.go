// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import "slices"

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

func (c *change) view(i int) *dirView {
	if c.new != nil {
		return &c.new.dirs[i]
	}
	return &c.old.dirs[i]
}

// scanned takes over the state of a directory and drops the files that are gone.
func (c *change) scanned(s *scan) {
	if c.r.scanned[s.i] > c.seq {
		return
	}
	v := c.view(s.i)
	rescan := !s.watched && s.id.errno == 0
	if v.id != s.id || v.rescan != rescan || v.watched != s.watched || !sameError(v.err, s.err) {
		c.begin()
		v = c.view(s.i)
		v.id, v.rescan, v.watched, v.err = s.id, rescan, s.watched, s.err
	}
	var gone []string
	for e := range v.files.all() {
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
	old, known := c.view(k.dir).files.get(k.name)
	if !known && e == nil || known && e != nil && old.same(e) {
		return
	}
	s := c.begin()
	v := &s.dirs[k.dir]
	if known {
		c.unindex(old)
		if old.err != nil {
			v.failed.remove(c.e, k.name)
		}
		if old.check != checkNone {
			if c.dropped == nil {
				c.dropped = map[*entry]struct{}{}
			}
			c.dropped[old] = struct{}{}
		}
	}
	if e == nil {
		v.files.remove(c.e, k.name)
		return
	}
	e.seq = c.seq
	v.files.put(c.e, e)
	if e.check != checkNone {
		s.volatile = append(s.volatile, e)
	}
	if e.err != nil {
		v.failed.put(c.e, e)
		return
	}
	c.index(e)
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
func (c *change) index(e *entry) {
	k := c.kind(e.kind())
	k.files++
	for i := range e.blob.n {
		s := slot{e: e, i: uint32(i)}
		name := s.key()
		if other, ok := k.devices.get(name); ok {
			s.rest = other.alone()
		}
		k.devices.put(c.e, s)
		c.conflict(k, &s, name)
	}
}

// unindex takes them out.
func (c *change) unindex(e *entry) {
	if e.err != nil {
		return
	}
	k := c.kind(e.kind())
	k.files--
	for i := range e.blob.n {
		name := e.blob.deviceName(i)
		known, _ := k.devices.get(name)
		s := known.without(e)
		if s == nil {
			k.devices.remove(c.e, name)
		} else {
			k.devices.put(c.e, *s)
		}
		c.conflict(k, s, name)
	}
	if k.files == 0 {
		c.new.kinds.remove(c.e, k.name)
	}
}

// kind gives the kind to change, a copy when it is published.
func (c *change) kind(name string) *kindSet {
	s := c.begin()
	k, ok := s.kinds.get(name)
	switch {
	case !ok:
		// A copy of the name, so that the kind does not hold the first file.
		k = &kindSet{name: string([]byte(name)), devices: trie[slot]{seed: c.r.seed}}
	case k.owner == c.e:
		return k
	default:
		cp := *k
		k = &cp
	}
	k.owner = c.e
	s.kinds.put(c.e, k)
	return k
}

// conflict keeps the list of names that are declared twice at one priority.
func (c *change) conflict(k *kindSet, s *slot, name string) {
	if s != nil && s.rest != nil && s.clashes() {
		c.new.conflicts.put(c.e, conflictName{k.name, name})
	} else if c.new.conflicts.len > 0 {
		c.new.conflicts.remove(c.e, k.name+"="+name)
	}
}
