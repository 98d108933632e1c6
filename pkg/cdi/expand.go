// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/containerd/errdefs"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/jackfield/jackfield/internal/base/name"
)

// Expand returns the devices of "kind=all": the device named "all" if the kind has one, and otherwise every usable
// device of the kind in natural order, without duplicates.
//
// Vendors declare one piece of hardware under several names, such as its index and its UUID. Two devices of a kind
// are duplicates if
//
//   - all their edits are equal, in any order of each list, or
//   - they have the same device nodes (at least one), and exactly one of the two names contains a UUID. Their env can
//     differ, because it contains the name.
//
// The first duplicate in natural order is kept. A conflict about the name "all" is a *ConflictError. A kind without
// usable devices is a *NotFoundError.
func (s *Snapshot) Expand(kind string) ([]*Device, error) {
	switch d, err := s.Device(kind + "=all"); {
	case err == nil:
		return []*Device{d}, nil
	case errdefs.IsConflict(err):
		return nil, err
	}
	list, err := s.Kind(kind)
	if err != nil {
		return nil, err
	}
	seen, uuidNodes, otherNodes := map[string]bool{}, map[string]bool{}, map[string]bool{}
	kept := list[:0]
	for _, d := range list {
		edits, nodes := editsKey(d.Edits), nodesKey(d.Edits)
		same, other := otherNodes, uuidNodes
		if name.HasUUID(d.Name[len(d.Kind)+1:]) {
			same, other = uuidNodes, otherNodes
		}
		if seen[edits] || nodes != "" && other[nodes] {
			continue
		}
		seen[edits], same[nodes] = true, true
		kept = append(kept, d)
	}
	return kept, nil
}

// Skipped returns the reasons why Expand omits devices of a kind: a *SpecError for each refused file, and then a
// *ConflictError for each device that several files of one priority declare.
func (s *Snapshot) Skipped(kind string) []error {
	var reasons []error
	for _, f := range s.files {
		if f.err != nil && f.kind == kind {
			reasons = append(reasons, f.err)
		}
	}
	_, conflicts := s.devicesOf(kind)
	for _, err := range conflicts {
		reasons = append(reasons, err)
	}
	return reasons
}

// editsKey returns the same text for edits that differ only in the order of their lists.
func editsKey(e *specs.ContainerEdits) string {
	return marshalKey([]any{sortedTexts(e.Env), sortedTexts(nodesWithHostPath(e)), sortedTexts(e.NetDevices),
		sortedTexts(e.Hooks), sortedTexts(e.Mounts), e.IntelRdt, sortedTexts(e.AdditionalGIDs)})
}

// nodesKey returns the same text for equal sets of device nodes, and "" for the empty set.
func nodesKey(e *specs.ContainerEdits) string {
	if len(e.DeviceNodes) == 0 {
		return ""
	}
	return marshalKey(slices.Compact(sortedTexts(nodesWithHostPath(e))))
}

// nodesWithHostPath returns the device nodes, with the host path if the file omits it.
func nodesWithHostPath(e *specs.ContainerEdits) []specs.DeviceNode {
	nodes := make([]specs.DeviceNode, len(e.DeviceNodes))
	for i, n := range e.DeviceNodes {
		nodes[i] = *n
		nodes[i].HostPath = cmp.Or(n.HostPath, n.Path)
	}
	return nodes
}

func sortedTexts[T any](list []T) []string {
	texts := make([]string, len(list))
	for i, item := range list {
		texts[i] = marshalKey(item)
	}
	slices.Sort(texts)
	return texts
}

func marshalKey(v any) string {
	text, _ := json.Marshal(v) // strings, numbers and lists of them, which cannot fail
	return string(text)
}
