// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"slices"
	"strings"
)

// Bounds of what an error tells.
const (
	toldFiles = 3
	toldNames = 3
	// lookedAt are the names that are compared with the one asked for: a thousand
	// requests for what is not there must not take the time of a thousand directories.
	lookedAt = 1 << 13
)

// notFound is the error for a name; device is "" when all of the kind were asked for.
func (s *Snapshot) notFound(asked, kind, device string) *NotFoundError {
	e := &NotFoundError{Name: asked, Kind: kind, Reason: NoSpec, device: device, snapshot: s}
	if _, ok := s.kinds.get(nothing{}, kind); ok {
		e.Reason = NoDevice
		if device == "" {
			e.Reason = NoDevices
		}
	}
	for i := range s.dirs {
		for f := range s.entries(&s.dirs[i].failed) {
			if f.err.kind == kind && (device == "" || slices.Contains(f.err.names, device)) {
				e.Reason = Refused
			}
		}
	}
	return e
}

// Explain looks through the snapshot for what helps. It takes time in proportion
// to the number of files and devices.
func (e *NotFoundError) Explain() Explanation {
	var x Explanation
	s := e.snapshot
	if s == nil {
		return x
	}
	for _, d := range s.Dirs() {
		x.Dirs = append(x.Dirs, d.Path)
		if d.Missing {
			x.Missing = append(x.Missing, d.Path)
		}
		if d.Err != nil {
			x.DirErrors = append(x.DirErrors, d.Err)
		}
	}
	mentions := first[*entry]{most: toldFiles, before: beforeEntry}
	same, other := mentions, mentions
	for i := range s.dirs {
		for f := range s.entries(&s.dirs[i].files) {
			switch {
			case f.kind() == e.Kind:
				mentions.add(f)
				if f.err != nil {
					same.add(f)
				}
			case f.err != nil:
				other.add(f)
			}
		}
	}
	for _, f := range mentions.list {
		x.Mentions = append(x.Mentions, f.path())
	}
	x.MentionCount = mentions.count
	for _, f := range append(same.list, other.list...) {
		if len(x.Failed) < toldFiles {
			x.Failed = append(x.Failed, &f.err.SpecError)
		}
	}
	x.FailedCount = same.count + other.count
	if e.Reason == NoDevices { // why it has none, although files declare some
		x.Conflicts, x.ConflictCount = s.conflictsOf(e.Kind)
	}
	x.Nearest = e.nearest()
	return x
}

// conflictsOf are the devices of a kind that no file has alone, the first three of them
// by name, and how many there are.
func (s *Snapshot) conflictsOf(kind string) (list []*ConflictError, count int) {
	k, ok := s.kinds.get(nothing{}, kind)
	if !ok {
		return nil, 0
	}
	names := first[*ConflictError]{most: toldNames, before: func(a, b *ConflictError) int { return naturalCompare(a.Name, b.Name) }}
	for sl := range k.devices.all() {
		if best, n := k.best(&s.table, sl); n > 1 {
			names.add(k.declarations(&s.table, sl).conflict(kind+"="+best.name(), best.e.dir))
		}
	}
	return names.list, names.count
}

// nearest are qualified names of the kind, or kinds, that may have been meant.
func (e *NotFoundError) nearest() []string {
	s := e.snapshot
	if k, ok := s.kinds.get(nothing{}, e.Kind); ok {
		n := newNearest(e.device, toldNames)
		left := lookedAt
		for sl := range k.devices.all() {
			if left--; left < 0 {
				break
			}
			n.add(sl.key(&s.table))
		}
		out := n.names()
		for i := range out {
			out[i] = e.Kind + "=" + out[i]
		}
		return out
	}
	n := newNearest(e.Kind, toldNames)
	left := lookedAt
	for k := range s.kinds.all() {
		if left--; left < 0 {
			break
		}
		n.add(k.name)
	}
	out := n.names()
	for i, near := range out {
		if k, ok := s.kinds.get(nothing{}, near); ok && e.device != "" {
			if _, ok := k.devices.get(&s.table, e.device); ok {
				out[i] = near + "=" + e.device
			}
		}
	}
	return out
}

// beforeEntry orders entries by path.
func beforeEntry(a, b *entry) int {
	return strings.Compare(a.path(), b.path())
}

// first keeps the first few of many values, in order.
type first[T any] struct {
	most   int
	before func(a, b T) int
	list   []T
	count  int
}

func (f *first[T]) add(v T) {
	f.count++
	if len(f.list) == f.most && f.before(v, f.list[f.most-1]) >= 0 {
		return
	}
	i, _ := slices.BinarySearchFunc(f.list, v, f.before)
	f.list = slices.Insert(f.list, i, v)
	f.list = f.list[:min(len(f.list), f.most)]
}
