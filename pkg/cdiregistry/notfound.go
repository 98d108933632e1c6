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
	// lookedAt bounds the names that are compared with one that was not found.
	lookedAt = 4096
)

// notFound explains why there is no device of a name; name is "" when all devices
// of the kind were asked for.
func (s *Snapshot) notFound(asked, kind, name string) *NotFoundError {
	e := &NotFoundError{Name: asked, Kind: kind, Reason: NoSpec}
	for _, d := range s.Dirs() {
		e.Dirs = append(e.Dirs, d.Path)
		if d.Err != nil {
			e.DirErrors = append(e.DirErrors, d.Err)
		}
	}
	k, ok := s.kinds.get(kind)
	if ok {
		e.Reason = NoDevice
		if name == "" {
			e.Reason = NoDevices
		}
		e.Mentions = k.filePaths()
	}
	s.tellFailed(e, kind, name)
	e.MentionCount = len(e.Mentions)
	slices.Sort(e.Mentions)
	e.Mentions = e.Mentions[:min(toldFiles, len(e.Mentions))]
	if ok {
		e.Nearest = qualified(kind, nearest(name, k.names(), toldNames))
	} else {
		e.Nearest = s.nearestKinds(kind, name)
	}
	return e
}

// tellFailed adds the files that are refused, those of the kind first.
func (s *Snapshot) tellFailed(e *NotFoundError, kind, name string) {
	var same, other []*SpecError
	for i := range s.dirs {
		for f := range s.dirs[i].failed.all() {
			if f.kind != kind {
				other = append(other, f.err)
				continue
			}
			same = append(same, f.err)
			e.Mentions = append(e.Mentions, f.path())
			if name == "" || slices.Contains(f.names, name) {
				e.Reason = Refused
			}
		}
	}
	for _, list := range [][]*SpecError{same, other} {
		slices.SortFunc(list, func(a, b *SpecError) int { return strings.Compare(a.Path, b.Path) })
		e.Failed = append(e.Failed, list...)
	}
	e.FailedCount = len(e.Failed)
	e.Failed = slices.Clip(e.Failed[:min(toldFiles, len(e.Failed))])
}

// filePaths are the files that declare the kind.
func (k *kindSet) filePaths() []string {
	seen := map[*entry]struct{}{}
	var out []string
	for sl := range k.devices.all() {
		for ; sl != nil; sl = sl.rest {
			if _, twice := seen[sl.e]; !twice {
				seen[sl.e] = struct{}{}
				out = append(out, sl.e.path())
			}
		}
	}
	return out
}

// names are device names of the kind, sorted, at most lookedAt.
func (k *kindSet) names() []string {
	out := make([]string, 0, min(k.devices.len, lookedAt))
	for sl := range k.devices.all() {
		if len(out) == lookedAt {
			break
		}
		out = append(out, sl.key())
	}
	return out
}

// nearestKinds are names of kinds like this one, with the device when the kind has it.
func (s *Snapshot) nearestKinds(kind, name string) []string {
	kinds := s.Kinds()
	out := nearest(kind, kinds[:min(len(kinds), lookedAt)], toldNames)
	for i, near := range out {
		if k, ok := s.kinds.get(near); ok && name != "" {
			if _, ok := k.devices.get(name); ok {
				out[i] = near + "=" + name
			}
		}
	}
	return out
}

func qualified(kind string, names []string) []string {
	for i, n := range names {
		names[i] = kind + "=" + n
	}
	return names
}
