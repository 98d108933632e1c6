// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"maps"
	"slices"
)

// names is a set of strings. Most have one or two, which need no memory beside it.
type names struct {
	few  [4]string
	n    int // in few
	many map[string]struct{}
}

func (n *names) has(name string) bool {
	if n.many != nil {
		_, ok := n.many[name]
		return ok
	}
	return slices.Contains(n.few[:n.n], name)
}

func (n *names) add(name string) {
	switch {
	case n.has(name):
	case n.many != nil:
		n.many[name] = struct{}{}
	case n.n < len(n.few):
		n.few[n.n] = name
		n.n++
	default:
		n.many = make(map[string]struct{}, 4*len(n.few))
		for _, have := range n.few {
			n.many[have] = struct{}{}
		}
		n.many[name] = struct{}{}
	}
}

func (n *names) len() int { return max(n.n, len(n.many)) }

// clone is a set with the same names that shares nothing.
func (n *names) clone() names {
	c := *n
	c.many = maps.Clone(n.many)
	return c
}
