// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"slices"

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
	// Mounts are large: they are put in order by their places, and copied once.
	// Most containers have few, which cost no memory here.
	const few = 40
	var memory [few]placed
	refs := memory[:0]
	for i := range have {
		refs = append(refs, place(mountRef(i), have[i].Destination))
	}
	for i := range set {
		m := place(mountRef(-1-i), set[i].Destination)
		for at, r := range refs {
			// What is at one place is equally deep, however it is spelled.
			if r.depth == m.depth && edits.SameSpelling(r.destination(have, set), set[i].Destination) {
				refs = slices.Delete(refs, at, at+1)
				break
			}
		}
		refs = append(refs, m)
	}
	// Stably by depth, as CRI-O, Docker and CDI's library do it.
	if len(refs) > few {
		slices.SortStableFunc(refs, func(a, b placed) int { return int(a.depth - b.depth) })
	} else {
		for i, r := range refs {
			for ; i > 0 && refs[i-1].depth > r.depth; i-- {
				refs[i] = refs[i-1]
			}
			refs[i] = r
		}
	}
	l := list[rspec.Mount]{items: make([]rspec.Mount, len(refs)), set: true}
	if c.track {
		l.from = make([]int, len(refs))
		for at, r := range refs {
			l.from[at] = max(int(r.mountRef), added)
		}
	}
	for at := 0; at < len(refs); {
		r := refs[at].mountRef
		if r < 0 {
			l.items[at] = c.mount(&set[-1-r], userNamespace)
			at++
			continue
		}
		// Those that stay next to each other are copied together.
		n := 1
		for at+n < len(refs) && refs[at+n].mountRef == r+mountRef(n) {
			n++
		}
		at += copy(l.items[at:], have[r:][:n])
	}
	c.mounts = l
}

// placed is a mount with the depth of its destination.
type placed struct {
	mountRef
	depth int32
}

func place(r mountRef, destination string) placed {
	return placed{r, int32(edits.Depth(destination))}
}

func (r mountRef) destination(have []rspec.Mount, set []edits.Mount) string {
	if r < 0 {
		return set[-1-r].Destination
	}
	return have[r].Destination
}

// mount is a mount of the set as the spec has it.
func (c *changes) mount(m *edits.Mount, userNamespace bool) rspec.Mount {
	options := c.copy(m.Options)
	if userNamespace && m.Origin.Source == edits.CDI {
		options = mapped(m.Type, options)
	}
	return rspec.Mount{Destination: m.Destination, Source: m.Source, Type: m.Type, Options: options}
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
