// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"
)

// Expand is what "kind=all" stands for: the device that is called "all" when
// there is one, otherwise every usable device of the kind in natural order,
// none of them twice.
//
// Vendors declare one piece of hardware under several names, its index and its
// UUID. Two devices of a kind are the same when
//
//   - all their edits are equal, in whatever order they stand in each list, or
//   - they have the same device nodes (at least one), and exactly one of the two
//     names contains a UUID; their env may differ then, as it carries the name.
//
// The first in natural order is kept. A conflict about the name "all" is a
// *ConflictError; nothing to give is a *NotFoundError.
func (s *Snapshot) Expand(kind string) ([]*Device, error) {
	d, err := s.Device(kind + "=all")
	if err == nil {
		return []*Device{d}, nil
	}
	var conflict *ConflictError
	if errors.As(err, &conflict) {
		return nil, err
	}
	list, err := s.Kind(kind)
	if err != nil {
		return nil, err
	}
	edits := map[string]struct{}{}
	uuidNodes, plainNodes := map[string]struct{}{}, map[string]struct{}{}
	kept := list[:0]
	for _, d := range list {
		all, nodes := editsKey(d.Edits), nodesKey(d.Edits)
		same, other := plainNodes, uuidNodes
		if hasUUID(d.Name[len(d.Kind)+1:]) {
			same, other = uuidNodes, plainNodes
		}
		_, equal := edits[all]
		_, alias := other[nodes]
		if equal || alias && nodes != "" {
			continue
		}
		edits[all] = struct{}{}
		same[nodes] = struct{}{}
		kept = append(kept, d)
	}
	return kept, nil
}

// LeftOut is why Expand may have less than the kind's files declare: a *SpecError for
// each file of the kind that is refused, by path, and then a *ConflictError for each
// device that several files declare at one priority, by name; the first three, and how
// many there are.
func (s *Snapshot) LeftOut(kind string) (why []error, count int) {
	failed := first[*entry]{most: toldFiles, before: beforeEntry}
	for i := range s.dirs {
		for e := range s.entries(&s.dirs[i].failed) {
			if e.err.kind == kind {
				failed.add(e)
			}
		}
	}
	for _, e := range failed.list {
		why = append(why, &e.err.SpecError)
	}
	conflicts, more := s.conflictsOf(kind)
	for _, c := range conflicts[:min(len(conflicts), toldFiles-len(why))] {
		why = append(why, c)
	}
	return why, failed.count + more
}

// editsKey is equal for edits that are equal but for the order in each list.
func editsKey(e *specs.ContainerEdits) string {
	var b strings.Builder
	add := func(what string, items []string) {
		slices.Sort(items)
		fmt.Fprintf(&b, "%s%q", what, items)
	}
	add("env", slices.Clone(e.Env))
	add("nodes", nodeTexts(e))
	var items []string
	for _, n := range e.NetDevices {
		items = append(items, fmt.Sprintf("%q", *n))
	}
	add("net", items)
	items = nil
	for _, h := range e.Hooks {
		seconds := 0
		if h.Timeout != nil {
			seconds = *h.Timeout
		}
		items = append(items, fmt.Sprintf("%q%q%q%q%d", h.HookName, h.Path, h.Args, h.Env, seconds))
	}
	add("hooks", items)
	items = nil
	for _, m := range e.Mounts {
		items = append(items, fmt.Sprintf("%q", *m))
	}
	add("mounts", items)
	if e.IntelRdt != nil {
		fmt.Fprintf(&b, "rdt%q", fmt.Sprint(*e.IntelRdt))
	}
	gids := slices.Clone(e.AdditionalGIDs)
	slices.Sort(gids)
	fmt.Fprintf(&b, "gids%d", gids)
	return b.String()
}

// nodesKey is equal for the same set of device nodes, "" without any.
func nodesKey(e *specs.ContainerEdits) string {
	if len(e.DeviceNodes) == 0 {
		return ""
	}
	items := nodeTexts(e)
	slices.Sort(items)
	return fmt.Sprintf("%q", slices.Compact(items))
}

func nodeTexts(e *specs.ContainerEdits) []string {
	var items []string
	for _, n := range e.DeviceNodes {
		host := n.HostPath
		if host == "" {
			host = n.Path
		}
		mode, uid, gid := int64(-1), int64(-1), int64(-1)
		if n.FileMode != nil {
			mode = int64(*n.FileMode)
		}
		if n.UID != nil {
			uid = int64(*n.UID)
		}
		if n.GID != nil {
			gid = int64(*n.GID)
		}
		items = append(items, fmt.Sprintf("%q%q%q%d:%d %d %q %d %d", n.Path, host, n.Type, n.Major, n.Minor, mode, n.Permissions, uid, gid))
	}
	return items
}

// hasUUID tells whether a name contains 8-4-4-4-12 hexadecimal digits.
func hasUUID(name string) bool {
	const length = 36
	for ; len(name) >= length; name = name[1:] {
		ok := true
		for i, c := range []byte(name[:length]) {
			if i == 8 || i == 13 || i == 18 || i == 23 {
				ok = ok && c == '-'
			} else {
				ok = ok && (isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f')
			}
		}
		if ok {
			return true
		}
	}
	return false
}
