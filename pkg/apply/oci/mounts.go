// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"path"
	"slices"
	"sort"
	"strings"

	rspec "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jackfield/jackfield/pkg/edits"
)

func (c *changes) planMounts(have []rspec.Mount, set []edits.Mount, userNamespace bool) {
	if len(set) == 0 {
		return
	}
	l := listOf(have, len(set), c.track)
	for i := range set {
		m := &set[i]
		for at := range l.items {
			if samePath(l.items[at].Destination, m.Destination) {
				l.remove(at)
				break
			}
		}
		options := slices.Clone(m.Options)
		if userNamespace && m.Origin.Source == edits.CDI {
			options = mapped(m.Type, options)
		}
		l.add(rspec.Mount{Destination: m.Destination, Source: m.Source, Type: m.Type, Options: options})
	}
	sortByDepth(&l)
	c.mounts = l
}

// mapped adds the option by which a bind mount in a user namespace shows the owners
// that its files have, unless it is there.
func mapped(mountType string, options []string) []string {
	option := ""
	if mountType == "bind" {
		option = "idmap"
	}
	for _, o := range options {
		switch o {
		case "idmap", "ridmap":
			return options
		case "bind":
			option = "idmap"
		case "rbind":
			option = "ridmap"
		}
	}
	if option == "" {
		return options
	}
	return append(options, option)
}

// byDepth sorts mounts by the number of elements in their destinations, the order
// that CRI-O, Docker and CDI's library use.
type byDepth struct {
	*list[rspec.Mount]
	depth []int
}

func (s byDepth) Len() int           { return len(s.depth) }
func (s byDepth) Less(i, j int) bool { return s.depth[i] < s.depth[j] }
func (s byDepth) Swap(i, j int) {
	s.depth[i], s.depth[j] = s.depth[j], s.depth[i]
	s.swap(i, j)
}

func sortByDepth(l *list[rspec.Mount]) {
	// Most containers have few mounts, which cost no memory here.
	const few = 64
	if n := len(l.items); n > few {
		s := byDepth{list: l, depth: make([]int, n)}
		for i := range s.depth {
			s.depth[i] = depth(l.items[i].Destination)
		}
		sort.Stable(s)
		return
	}
	var depths [few]int
	for i := range l.items {
		depths[i] = depth(l.items[i].Destination)
		for j := i; j > 0 && depths[j] < depths[j-1]; j-- {
			depths[j], depths[j-1] = depths[j-1], depths[j]
			l.swap(j, j-1)
		}
	}
}

func depth(destination string) int {
	return strings.Count(clean(destination), "/")
}

// samePath tells whether two spellings are of one path in the container. Most
// paths end in different bytes, which settles it where none of them is one that
// cleaning may take away.
func samePath(a, b string) bool {
	if a == b {
		return true
	}
	if n, m := len(a), len(b); n > 0 && m > 0 {
		if x, y := a[n-1], b[m-1]; x != y && x != '/' && x != '.' && y != '/' && y != '.' {
			return false
		}
	}
	return clean(a) == clean(b)
}

// clean is path.Clean, faster for what is clean already.
func clean(p string) string {
	if len(p) > 1 && p[0] == '/' && p[len(p)-1] != '/' && !strings.Contains(p, "//") && !strings.Contains(p, "/.") {
		return p
	}
	return path.Clean(p)
}
