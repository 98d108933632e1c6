// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"cmp"
	"encoding/json"
	"slices"

	specs "tags.cncf.io/container-device-interface/specs-go"
)

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

// sortedTexts returns the items as JSON, sorted, so that lists with another order are equal.
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
