// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import "slices"

// kindSet is what is declared of one kind.
type kindSet struct {
	name    string
	devices trie[*table, slot]
	// shared are the names that several files declare.
	shared trie[nothing, sharedName]
	files  int
	owner  edit
}

func (k *kindSet) key(nothing) string { return k.name }

// slot is one declaration of a device by the numbers of its file and its place there:
// a snapshot has many.
type slot struct {
	file fileID
	i    uint32
}

// notSingle is set in the place of a slot when other files declare the name as well:
// all are among the kind's shared names then, and the slot is any of them.
const notSingle = 1 << 31

func (s slot) single() bool         { return s.i&notSingle == 0 }
func (s slot) key(in *table) string { return in.declared(s).name() }

type sharedName struct {
	name  string
	slots []slot
}

func (n sharedName) key(nothing) string { return n.name }

// declaration is a device of a file.
type declaration struct {
	e *entry
	i int
}

func (t *table) declared(s slot) declaration {
	return declaration{e: t.at(s.file), i: int(s.i &^ notSingle)}
}

func (d declaration) name() string { return d.e.blob().deviceName(d.i) }

func (d declaration) device(qualifiedName string) *Device {
	out := &Device{Name: qualifiedName, File: d.e.path(), Priority: d.e.dir.prio}
	d.e.blob().fill(d.i, out)
	return out
}

// declarations are those of one name in different files, at least one.
type declarations []declaration

// declarations are those of the name of a slot of the kind.
func (k *kindSet) declarations(in *table, s slot) declarations {
	slots := k.slots(in, s)
	out := make(declarations, len(slots))
	for i, s := range slots {
		out[i] = in.declared(s)
	}
	return out
}

// best is that of the highest priority of the name of a slot, and how many have it.
// Most names are declared once, which takes no list.
func (k *kindSet) best(in *table, s slot) (declaration, int) {
	if s.single() {
		return in.declared(s), 1
	}
	return k.declarations(in, s).best()
}

// slots are all of the name of one of them.
func (k *kindSet) slots(in *table, s slot) []slot {
	if s.single() {
		return []slot{s}
	}
	n, _ := k.shared.get(nothing{}, s.key(in))
	return n.slots
}

// set makes these, at least one, the slots of a name.
func (k *kindSet) set(in *table, e edit, name string, slots []slot) {
	s := slots[0]
	if len(slots) > 1 {
		k.shared.put(nothing{}, e, sharedName{name, slots})
		s.i |= notSingle
	} else {
		k.shared.remove(nothing{}, e, name)
	}
	k.devices.put(in, e, s)
}

// best is a declaration of the highest priority, and how many have it.
func (all declarations) best() (declaration, int) {
	best, n := all[0], 1
	for _, d := range all[1:] {
		switch {
		case d.e.dir.prio > best.e.dir.prio:
			best, n = d, 1
		case d.e.dir.prio == best.e.dir.prio:
			n++
		}
	}
	return best, n
}

// clash tells that two declarations have the same priority, the highest or not.
func (all declarations) clash() bool {
	for i, d := range all {
		if slices.ContainsFunc(all[:i], func(o declaration) bool { return o.e.dir == d.e.dir }) {
			return true
		}
	}
	return false
}

// conflict is the error of the declarations in one directory.
func (all declarations) conflict(qualifiedName string, d *specDir) *ConflictError {
	e := &ConflictError{Name: qualifiedName}
	for _, o := range all {
		if o.e.dir == d {
			e.Files = append(e.Files, o.e.path())
		}
	}
	slices.Sort(e.Files)
	best, n := all.best()
	e.Shadowed = n == 1 && best.e.dir != d
	return e
}

// conflicting are the declarations of a name that is in conflict.
func (s *Snapshot) conflicting(c conflictName) declarations {
	k, _ := s.kinds.get(nothing{}, c.kind)
	sl, _ := k.devices.get(&s.table, c.name)
	return k.declarations(&s.table, sl)
}
