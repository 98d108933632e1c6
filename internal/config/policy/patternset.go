// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/glob"
)

// patternSet is a compiled Allow.
type patternSet [kinds][]pattern

// pattern is one compiled entry of a rule's list.
type pattern struct {
	text string // for messages: quoted, or a line of YAML
	name glob.Glob
	// destination and readOnly apply to mounts. A nil destination matches every path.
	destination *glob.Glob
	readOnly    bool
	fsType      string      // mounts that are not bind mounts; name is unset
	vlans       []vlanRange // ports; nil matches every VLAN and untagged ports
}

// compilePatterns compiles a rule's allow or deny.
func (f *faults) compilePatterns(field string, a Allow) (set patternSet) {
	for k := range kinds {
		list := a.list(k)
		if list == nil {
			continue
		}
		for _, g := range f.compileList(field+"."+k.listName(), *list, k.compile) {
			set[k] = append(set[k], pattern{text: diag.Quote(g.String()), name: g})
		}
	}
	for i, m := range a.Mounts {
		at := fmt.Sprintf("%s.mounts[%d]", field, i)
		p := pattern{text: m.FormatYAML(), readOnly: m.ReadOnly, fsType: m.Type}
		f.compileMounted(at, &m, &p)
		if m.Destination != "" {
			g := f.compile(at+".destination", m.Destination, glob.CompilePath)
			p.destination = &g
		}
		set[kindMount] = append(set[kindMount], p)
	}
	set[kindPort] = f.compilePorts(field+".ports", a.Ports)
	return set
}

// bindTypes are the types that denote bind mounts.
var bindTypes = []string{"", "bind", "none"}

// isFileSystemType reports whether a rule can contain the type. It excludes bind mounts, which
// rules match by source.
func isFileSystemType(name string) bool {
	return !slices.Contains(bindTypes, name) && len(name) <= 64 &&
		!strings.ContainsFunc(name, func(r rune) bool {
			return (r < '0' || r > '9') && (r|32 < 'a' || r|32 > 'z') && !strings.ContainsRune("._-", r)
		})
}

// compileMounted compiles the source or the type of a mount pattern.
func (f *faults) compileMounted(at string, m *Mount, p *pattern) {
	switch {
	case m.Type == "":
		p.name = f.compile(at+".source", m.Source, glob.CompilePath)
	case !isFileSystemType(m.Type):
		f.addFault(at+".type", diag.Quote(m.Type),
			"a type of file systems, such as overlay; bind mounts have a source and no type")
	case m.Source != "":
		f.addFault(at+".source", diag.Quote(m.Source),
			"a mount has a type or a source: options of a file system with a type can name other sources")
	}
}

// String returns the mount as SOURCE:DESTINATION or SOURCE:DESTINATION:ro, with type=TYPE instead
// of the source for a file system.
func (m Mount) String() string {
	s := m.Source + ":" + m.Destination
	if m.Type != "" {
		s = "type=" + m.Type + ":" + m.Destination
	}
	if m.ReadOnly {
		s += ":ro"
	}
	return s
}

// FormatYAML returns the mount as one line of a rule.
func (m Mount) FormatYAML() string {
	text := "{source: " + strconv.Quote(m.Source)
	if m.Type != "" {
		text = "{type: " + strconv.Quote(m.Type)
	}
	if m.Destination != "" {
		text += ", destination: " + strconv.Quote(m.Destination)
	}
	if m.ReadOnly {
		text += ", readOnly: true"
	}
	return text + "}"
}

// compileCDI compiles a pattern for CDI names, and rejects one that no name can match.
func compileCDI(pattern string) (glob.Glob, error) {
	if !strings.Contains(pattern, "*") {
		kind, name, ok := strings.Cut(pattern, "=")
		if vendor, class, slash := strings.Cut(kind, "/"); !ok || !slash || vendor == "" || class == "" || name == "" {
			return glob.Glob{}, fmt.Errorf("must be vendor.com/class=name, with * for any characters")
		}
	}
	return glob.CompileName(pattern)
}

// matches reports whether the pattern matches the item. Both must have the same kind.
func (p *pattern) matches(it *item) bool {
	switch {
	case it.kind == kindMount:
		return p.matchesSource(it, p.name.Match) && p.matchesMode(it) &&
			(p.destination == nil || p.destination.Match(it.destination))
	case it.kind == kindPort:
		return p.name.Match(it.name) && p.matchesVLAN(it.vlan)
	case it.whole:
		return p.name.Covers(it.name)
	}
	return p.name.Match(it.name)
}

// matchesMode reports whether the pattern covers mounts as writable as the item.
func (p *pattern) matchesMode(it *item) bool { return !p.readOnly || !it.writable }

// matchesSource matches a bind mount by its source, and another file system by its type.
func (p *pattern) matchesSource(it *item, matches func(source string) bool) bool {
	return p.fsType == it.fsType && (it.fsType != "" || matches(it.name))
}

// matchesWithin reports whether the pattern of a denial matches a part of the item: a path below a
// mount or a socket's directory, or a VLAN of an untagged port. Without this check a tenant could
// request the parent of a denied path.
func (p *pattern) matchesWithin(it *item) bool {
	switch {
	case it.kind == kindMount:
		return p.matchesSource(it, p.name.MatchesBelow) && p.matchesMode(it) &&
			(p.destination == nil || p.destination.Match(it.destination) || p.destination.MatchesBelow(it.destination))
	case it.kind == kindPort:
		return it.vlan == 0 && p.name.Match(it.name)
	case it.whole:
		return p.name.Match(it.name) || p.name.MatchesBelow(it.name)
	}
	return false
}

// findPattern returns the text of the first pattern of the item's kind for which matches returns
// true, or "".
func (s *patternSet) findPattern(it *item, matches func(*pattern, *item) bool) string {
	list := s[it.kind]
	for i := range list {
		if matches(&list[i], it) {
			return list[i].text
		}
	}
	return ""
}

// matching returns the text of the pattern that matches the item, or "".
func (s *patternSet) matching(it *item) string { return s.findPattern(it, (*pattern).matches) }

// granting returns the pattern that grants the item, or "". A node without an IOMMU is granted only by a pattern that
// names such nodes, so that a rule for VFIO does not grant the memory of the host.
func (s *patternSet) granting(it *item) string {
	return s.findPattern(it, func(p *pattern, it *item) bool {
		return p.matches(it) && (!it.isNoIOMMU() || strings.HasPrefix(p.name.Prefix(), noIOMMU))
	})
}

// matchingNetwork returns the text of the pattern that matches a network, or "". The name of a
// network of unknown namespace comes from a file, as namespace-name. Any "-" in it can be the
// separator, so every split is tried.
func (s *patternSet) matchingNetwork(name string) string {
	text := s.matching(&item{kind: kindNetwork, name: name})
	if len(s[kindNetwork]) == 0 || strings.Contains(name, "/") {
		return text
	}
	for i := 1; text == "" && i < len(name)-1 && i < glob.MaxPattern; i++ {
		if name[i] == '-' {
			text = s.matching(&item{kind: kindNetwork, name: name[:i] + "/" + name[i+1:]})
		}
	}
	return text
}

// patternTexts returns the patterns of a kind, for messages.
func (s *patternSet) patternTexts(k kind) []string {
	var all []string
	for _, p := range s[k] {
		all = append(all, p.text)
	}
	return all
}

// isEmpty reports whether the set has no patterns.
func (s *patternSet) isEmpty() bool {
	return !slices.ContainsFunc(s[:], func(list []pattern) bool { return len(list) > 0 })
}

// faults collects the faults of a rule, so that one run reports all of them.
type faults struct {
	file string
	rule string // path of the rule's field
	list []error
}

func (f *faults) addFault(field, found, rule string) {
	f.list = append(f.list, &diag.Diagnostic{File: f.file, Field: f.rule + "." + field, Found: found, Rule: rule})
}

func (f *faults) compile(field, pattern string, compile func(string) (glob.Glob, error)) glob.Glob {
	g, err := compile(pattern)
	if err != nil {
		f.addFault(field, diag.Quote(pattern), err.Error())
	}
	return g
}

func (f *faults) compileList(field string, patterns []string, compile func(string) (glob.Glob, error)) []glob.Glob {
	var all []glob.Glob
	for i, pattern := range patterns {
		all = append(all, f.compile(fmt.Sprintf("%s[%d]", field, i), pattern, compile))
	}
	return all
}
