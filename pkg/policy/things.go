// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strconv"
	"strings"
)

// things counts what the lists name, but for networks.
func (a *Allow) things() int {
	return len(a.CDI) + len(a.Sockets) + len(a.Devices) + len(a.Mounts) + len(a.Hooks)
}

func (t *things) compile(f *faults, field string, a Allow) {
	for _, list := range []struct {
		kind     kind
		patterns []string
		compile  func(string) (Glob, error)
		into     *[]Glob
	}{
		{kindCDI, a.CDI, compileCDI, &t.lists[kindCDI]},
		{kindSocket, a.Sockets, CompilePath, &t.lists[kindSocket]},
		{kindDevice, a.Devices, CompilePath, &t.lists[kindDevice]},
		{kindHook, a.Hooks, CompilePath, &t.lists[kindHook]},
		{kindNetwork, a.Networks, CompileName, &t.networks},
	} {
		f.compileList(field+"."+list.kind.field(), list.patterns, list.compile, list.into)
	}
	for i, m := range a.Mounts {
		c := mount{text: m.text(), any: m.Destination == "", readOnly: m.ReadOnly}
		at := fmt.Sprintf("%s.mounts[%d]", field, i)
		var err error
		if c.source, err = CompilePath(m.Source); err != nil {
			f.add(at+".source", err.Error())
		}
		if !c.any {
			if c.destination, err = CompilePath(m.Destination); err != nil {
				f.add(at+".destination", err.Error())
			}
		}
		t.mounts = append(t.mounts, c)
	}
}

// text is the mount as one line of the rule.
func (m Mount) text() string {
	text := "{source: " + strconv.Quote(m.Source)
	if m.Destination != "" {
		text += ", destination: " + strconv.Quote(m.Destination)
	}
	if m.ReadOnly {
		text += ", readOnly: true"
	}
	return text + "}"
}

func (m *mount) match(t *thing) bool {
	return m.source.Match(t.name) && (m.any || m.destination.Match(t.at)) && !(m.readOnly && t.writable)
}

// reaches reports whether a mount of a directory brings something along that the
// pattern of a denied mount matches.
func (m *mount) reaches(t *thing) bool {
	return m.source.MatchesBelow(t.name) && (m.any || m.destination.Match(t.at) || m.destination.MatchesBelow(t.at)) && !(m.readOnly && t.writable)
}

// has reports whether the lists name the thing. A network is for networks alone.
func (t *things) has(x *thing) bool { return t.which(x) != "" }

// which is the pattern that names the thing, "" for none.
func (t *things) which(x *thing) string {
	if x.kind == kindMount {
		for i := range t.mounts {
			if t.mounts[i].match(x) {
				return t.mounts[i].text
			}
		}
		return ""
	}
	globs := t.networks
	if x.kind != kindNetwork {
		globs = t.lists[x.kind]
	}
	for i := range globs {
		if x.whole && globs[i].Covers(x.name) || !x.whole && globs[i].Match(x.name) {
			return globs[i].pattern
		}
	}
	return ""
}

// socketWithin is the pattern of a denied socket that matches the directory or something
// below it, "" for none.
func (t *things) socketWithin(x *thing) string {
	for _, g := range t.lists[kindSocket] {
		if g.Match(x.name) || g.MatchesBelow(x.name) {
			return g.pattern
		}
	}
	return ""
}

// mountBelow is the denied mount that a mount of a directory brings along, "" for none.
func (t *things) mountBelow(x *thing) string {
	for i := range t.mounts {
		if t.mounts[i].reaches(x) {
			return t.mounts[i].text
		}
	}
	return ""
}

// network is the pattern that names a network, "" for none. One whose namespace is not
// known has its name from that of a file, namespace-name, where any "-" may be the one
// between: it has all of these names.
func (t *things) network(name string) string {
	pattern := t.which(&thing{kind: kindNetwork, name: name})
	if len(t.networks) == 0 || strings.Contains(name, "/") {
		return pattern
	}
	for i := 1; pattern == "" && i < len(name)-1 && i < maxPattern; i++ {
		if name[i] == '-' {
			pattern = t.which(&thing{kind: kindNetwork, name: name[:i] + "/" + name[i+1:]})
		}
	}
	return pattern
}

// patterns are those of a kind, as written.
func (t *things) patterns(k kind) []string {
	switch k {
	case kindMount:
		all := make([]string, len(t.mounts))
		for i := range t.mounts {
			all[i] = t.mounts[i].text
		}
		return all
	case kindNetwork:
		return patterns(t.networks)
	}
	return patterns(t.lists[k])
}

// prefixes are the literal beginnings of a kind's patterns.
func (t *things) prefixes(k kind, yield func(string)) {
	switch k {
	case kindMount:
		for i := range t.mounts {
			yield(t.mounts[i].source.prefix)
		}
		return
	case kindNetwork:
		for i := range t.networks {
			yield(t.networks[i].prefix)
		}
		return
	}
	for i := range t.lists[k] {
		yield(t.lists[k][i].prefix)
	}
}

func (t *things) empty() bool {
	for _, list := range t.lists {
		if len(list) > 0 {
			return false
		}
	}
	return len(t.mounts) == 0 && len(t.networks) == 0
}
