// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"path"
	"slices"
	"strings"

	rspec "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jackfield/jackfield/pkg/edits"
)

// mountRef is a mount of the spec by its place there, or of the set by its place,
// counted from -1 downwards.
type mountRef int32

func (c *changes) planMounts(have []rspec.Mount, set []edits.Mount, userNamespace bool) {
	if len(set) == 0 {
		return
	}
	destination := func(r mountRef) string {
		if r < 0 {
			return set[-1-r].Destination
		}
		return have[r].Destination
	}
	// Mounts are large: they are put in order by their places, and copied once.
	// Most containers have few, which cost no memory here.
	const few = 40
	var memory [few]mountRef
	var depths [few]int32
	refs := memory[:0]
	for i := range have {
		refs = append(refs, mountRef(i))
	}
	for i := range set {
		for at := range refs {
			if samePath(destination(refs[at]), set[i].Destination) {
				refs = slices.Delete(refs, at, at+1)
				break
			}
		}
		refs = append(refs, mountRef(-1-i))
	}
	// Stably by depth, as CRI-O, Docker and CDI's library do it.
	if len(refs) > few {
		slices.SortStableFunc(refs, func(a, b mountRef) int { return int(depth(destination(a)) - depth(destination(b))) })
	} else {
		for i, r := range refs {
			depths[i] = depth(destination(r))
			for j := i; j > 0 && depths[j] < depths[j-1]; j-- {
				depths[j], depths[j-1] = depths[j-1], depths[j]
				refs[j], refs[j-1] = refs[j-1], refs[j]
			}
		}
	}
	l := list[rspec.Mount]{items: make([]rspec.Mount, len(refs)), set: true}
	if c.track {
		l.from = make([]int, len(refs))
	}
	for at, r := range refs {
		if r >= 0 {
			l.items[at] = have[r]
		} else {
			m := &set[-1-r]
			options := c.copy(m.Options)
			if userNamespace && m.Origin.Source == edits.CDI {
				options = mapped(m.Type, options)
			}
			l.items[at] = rspec.Mount{Destination: m.Destination, Source: m.Source, Type: m.Type, Options: options}
		}
		if c.track {
			l.from[at] = max(int(r), added)
		}
	}
	c.mounts = l
}

// withBound are the mounts of a set, with those that give device nodes behind them.
func withBound(set *edits.Set) []edits.Mount {
	mounts := set.Mounts
	for i := range set.Devices {
		d := &set.Devices[i]
		if !d.Bind {
			continue
		}
		origin := d.Origin
		origin.Source = edits.View // no owner of a file is mapped
		mounts = append(mounts[:len(mounts):len(mounts)], edits.Mount{Destination: d.Path, Source: d.HostPath, Type: "bind",
			Options: []string{"bind", "rprivate", "nosuid", "noexec"}, Origin: origin})
	}
	return mounts
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

// depth is the number of elements of a destination.
func depth(destination string) int32 {
	return int32(strings.Count(clean(destination), "/"))
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

// propagation is what the propagation of the container's root has to be for what is
// mounted on the host later to reach a mount of Jackfield's own that asks for it;
// "" where it is so already. crun has the root private unless the configuration says
// otherwise, and cuts all mounts in it off with it.
func propagation(have string, set []edits.Mount) string {
	if have != "" && have != "private" && have != "rprivate" && have != "unbindable" && have != "runbindable" {
		return ""
	}
	for i := range set {
		if set[i].Origin.Source != edits.CDI && slices.Contains(set[i].Options, "rslave") {
			return "rslave"
		}
	}
	return ""
}
