// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"maps"
	"slices"
)

// names is a set of strings. Most have one or two, which need no map.
type names struct {
	few  []string
	many map[string]struct{}
}

// fewNames is up to how many strings comparing with each is the quickest.
const fewNames = 16

func (n *names) has(name string) bool {
	if n.many != nil {
		_, ok := n.many[name]
		return ok
	}
	return slices.Contains(n.few, name)
}

func (n *names) add(name string) {
	switch {
	case n.has(name):
	case n.many != nil:
		n.many[name] = struct{}{}
	case len(n.few) < fewNames:
		n.few = append(n.few, name)
	default:
		n.many = make(map[string]struct{}, 4*fewNames)
		for _, have := range n.few {
			n.many[have] = struct{}{}
		}
		n.many[name] = struct{}{}
	}
}

func (n *names) len() int { return max(len(n.few), len(n.many)) }

func (n *names) clone() names { return names{slices.Clone(n.few), maps.Clone(n.many)} }

// empty takes all out and keeps the memory, with the few strings that are in it.
func (n *names) empty() { n.few, n.many = n.few[:0], nil }
