// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"encoding/json"
	"strings"
)

// networkNames are the networks that a pod's annotation names, as
// namespace/name, in its order: a comma list of [namespace/]name[@interface], or
// a JSON list of objects (Multi-Network CRD specification, §4.1). What cannot be
// read names nothing; the names only help to show a network by its real name.
func networkNames(value, podNamespace string) []string {
	const limit = 64 << 10
	value = strings.TrimSpace(value)
	if len(value) > limit {
		return nil
	}
	if strings.HasPrefix(value, "[") {
		var list []struct{ Name, Namespace string }
		if json.Unmarshal([]byte(value), &list) != nil {
			return nil
		}
		names := make([]string, 0, len(list))
		for _, n := range list {
			if n.Namespace == "" {
				n.Namespace = podNamespace
			}
			names = append(names, n.Namespace+"/"+n.Name)
		}
		return names
	}
	var names []string
	for item := range strings.SplitSeq(value, ",") {
		item, _, _ = strings.Cut(strings.TrimSpace(item), "@")
		if item == "" {
			continue
		}
		if !strings.Contains(item, "/") {
			item = podNamespace + "/" + item
		}
		names = append(names, item)
	}
	return names
}
