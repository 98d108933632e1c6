// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import "strings"

// Reader looks up devices one after the other and uses the same memory for each:
// for a caller who makes something else of them at once. The zero value is ready;
// it serves one goroutine at a time.
type Reader struct {
	device     Device
	spec, edit editsMemory
	lists      lists
}

// Device is [Snapshot.Device], without annotations. What it gives is overwritten by
// the next call, but for the strings in it and the lists of strings that are not
// env: these may be kept, and changed.
func (r *Reader) Device(s *Snapshot, qualifiedName string) (*Device, error) {
	kind, name, _ := strings.Cut(qualifiedName, "=")
	sl, err := s.slot(qualifiedName, kind, name)
	if err != nil {
		return nil, err
	}
	r.spec.lists, r.edit.lists = &r.lists, &r.lists
	r.device.Name, r.device.File, r.device.Priority = qualifiedName, sl.e.path(), sl.e.dir.prio
	sl.e.blob.fillInto(int(sl.i), &r.device, &r.spec, &r.edit)
	return &r.device, nil
}

// Lists gives the reader memory for the lists of strings that may be kept: the
// caller sees to it that nobody uses it any more. What does not fit gets memory of
// its own.
func (r *Reader) Lists(memory []string) { r.lists = lists{memory: memory[:0]} }

// Wanted is how many strings the lists had since the last call of Lists.
func (r *Reader) Wanted() int { return r.lists.wanted }

// lists is where lists of strings are put.
type lists struct {
	memory []string
	wanted int
}

func (l *lists) room(n int) []string {
	l.wanted += n
	from := len(l.memory)
	if cap(l.memory)-from < n {
		return make([]string, n)
	}
	l.memory = l.memory[:from+n]
	return l.memory[from : from+n : from+n]
}
