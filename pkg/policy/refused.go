// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
)

// RefusedError says that no rule grants what was asked for, and what would. It
// unwraps to errdefs.ErrPermissionDenied. Its text is written for the person
// who reads it in "kubectl describe pod", where an event is cut after 1024
// bytes.
type RefusedError struct {
	Subject Subject
	// What kind of thing was asked for: "CDI device", "socket", "device
	// node" or "network".
	What string
	// Name of the thing asked for.
	Name string
	// Source is where the rules are from.
	Source string
	// Rule is the name of the rule that came closest, empty when none did.
	Rule string
	// Why says what did not match.
	Why string
	// Lines are the lines of YAML to add, none where no pattern can name
	// what was asked for.
	Lines []string
	// Under is where the lines go: "policy.rules", or "allow" or a list of it
	// in Rule, such as "allow.sockets".
	Under string
}

// Error implements error.
func (e *RefusedError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "refuse %s %s to container %s of pod %s: ", e.What, quote(e.Name),
		quote(e.Subject.Container), quote(e.Subject.Namespace+"/"+e.Subject.Pod))
	if e.Rule != "" {
		fmt.Fprintf(&b, "closest rule %s: ", quote(e.Rule))
	}
	b.WriteString(e.Why)
	switch {
	case len(e.Lines) == 0:
		return b.String()
	case e.Under == underRules:
		fmt.Fprintf(&b, "; to allow it, add to %s in %s:", e.Under, e.Source)
	default:
		fmt.Fprintf(&b, "; to allow it, add to %s of rule %s in %s:", e.Under, quote(e.Rule), e.Source)
	}
	for _, line := range e.Lines {
		b.WriteString("\n  " + line)
	}
	return b.String()
}

const (
	underRules = "policy.rules"
	underAllow = "allow"
)

// Unwrap implements the errors package's protocol.
func (e *RefusedError) Unwrap() error { return errdefs.ErrPermissionDenied }

// closeness orders the ways in which a rule can fail to grant, the farthest
// first.
type closeness uint8

const (
	unrelated      closeness = iota
	otherSubject             // grants the thing, to others
	partialSubject           // the same, and the namespace is right
	otherBoth                // for the subject, but from other networks and not the name
	otherKind                // for the subject, but nothing of the kind
	otherName                // for the subject, but other names of the kind
	otherNetwork             // the subject and the name, from other networks
)

// refuse finds the rule that came closest. It runs only on the way to an
// error.
func (p *Policy) refuse(k kind, s Subject, name string) *RefusedError {
	e := &RefusedError{Subject: s, What: k.String(), Name: name}
	var rules []rule
	if p != nil {
		e.Source, rules = p.source, p.rules
	}
	var (
		closest *rule
		at      closeness
		common  int
	)
	for i := range rules {
		r := &rules[i]
		c, n := r.closeness(k, &s, name)
		if c > at || c == at && n > common {
			closest, at, common = r, c, n
		}
	}
	switch {
	case len(rules) == 0:
		e.Why = "there are no rules, and what no rule allows is refused"
	case closest == nil:
		e.Why = "no rule is for this pod and none allows it to another"
	default:
		e.Rule = closest.name
		e.Why = closest.why(k, &s, at)
	}
	p.remedy(e, k, at)
	return e
}

// closeness says how near the rule came, and for rules equally near how many
// bytes of the name agreed.
func (r *rule) closeness(k kind, s *Subject, name string) (closeness, int) {
	list := r.list(k)
	named := matchAny(list, name)
	if k == kindNetwork {
		named = r.ofNetworks() && r.carries(name)
	}
	part := r.mismatch(s)
	switch {
	case part == "namespaces" && named:
		return otherSubject, 0
	case part != "" && named:
		return partialSubject, 0
	case part != "":
		return unrelated, 0
	case named:
		return otherNetwork, 0
	case (k == kindSocket || k == kindDevice) && !r.carries(s.Network):
		return otherBoth, 0
	case len(list) == 0:
		return otherKind, 0
	}
	common := 0
	for _, g := range list {
		common = max(common, commonPrefix(g.prefix, name))
	}
	return otherName, common
}

// list is what the rule's allow has for the kind.
func (r *rule) list(k kind) []Glob {
	if k == kindNetwork {
		return r.networks
	}
	return r.allow[k]
}

func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// why puts into words what kept the rule from granting.
func (r *rule) why(k kind, s *Subject, c closeness) string {
	switch c {
	case otherNetwork, otherBoth:
		verb := "allows it from the networks "
		if c == otherBoth {
			verb = "allows things from the networks "
		}
		if s.Network == "" {
			return verb + listed(patterns(r.networks)) + ", and no network brings it here"
		}
		return verb + listed(patterns(r.networks)) + ", not from " + quote(s.Network)
	case otherName:
		return "its allow." + k.field() + " has " + listed(patterns(r.list(k)))
	case otherKind:
		if k == kindNetwork {
			return "it allows neither sockets nor devices, which is what networks bring"
		}
		return "it has no allow." + k.field()
	}
	switch r.mismatch(s) {
	case "podLabels":
		for _, l := range r.labels {
			if value, ok := s.Labels[l.key]; !ok {
				return fmt.Sprintf("is for pods labelled %s=%s, and the pod has no such label", l.key, l.value)
			} else if !l.value.Match(value) {
				return fmt.Sprintf("is for pods labelled %s=%s, and the pod has %s", l.key, l.value, quote(value))
			}
		}
	case "runtimeClasses":
		if s.RuntimeHandler == "" {
			return "is for the runtime classes " + listed(r.subjects.RuntimeClasses) + ", and the pod has the default one"
		}
		return fmt.Sprintf("is for the runtime classes %s, not for %s", listed(r.subjects.RuntimeClasses), quote(s.RuntimeHandler))
	}
	return fmt.Sprintf("is for the namespaces %s, not for %s", listed(r.subjects.Namespaces), quote(s.Namespace))
}

// pathUnknown stands in the remedy for the sockets of a network, which are
// known only when the network brings one.
const pathUnknown = "/DIRECTORY/OF/ITS/SOCKETS/**"

// remedy writes the lines that would grant it.
func (p *Policy) remedy(e *RefusedError, k kind, c closeness) {
	if !nameable(k, e.Name) || !nameable(kindNetwork, e.Subject.Namespace) && c < otherKind {
		e.Why += "; no pattern can name it, so no rule can allow it alone"
		return
	}
	item := func(name string) []string { return []string{"- " + strconv.Quote(name)} }
	switch {
	case c == otherNetwork && nameable(kindNetwork, e.Subject.Network):
		e.Under, e.Lines = underAllow+"."+kindNetwork.field(), item(e.Subject.Network)
	case c == otherName:
		e.Under, e.Lines = underAllow+"."+k.field(), item(e.Name)
	case c == otherKind:
		field, name := k.field(), e.Name
		if k == kindNetwork {
			field, name = kindSocket.field(), pathUnknown
		}
		e.Under, e.Lines = underAllow, []string{field + ": [" + strconv.Quote(name) + "]"}
	default:
		allow := k.field() + ": [" + strconv.Quote(e.Name) + "]"
		if k == kindNetwork {
			allow = kindSocket.field() + ": [" + strconv.Quote(pathUnknown) + "], " + allow
		}
		e.Under, e.Lines = underRules, []string{
			"- name: " + p.freeName(e.Subject.Namespace+"-"+k.field()),
			"  for: {namespaces: [" + strconv.Quote(e.Subject.Namespace) + "]}",
			"  allow: {" + allow + "}",
		}
	}
}

// freeName returns a valid rule name that no rule has yet.
func (p *Policy) freeName(want string) string {
	if !validName(want) {
		want = "new"
	}
	name := want
	for n := 2; p.hasRule(name); n++ {
		name = fmt.Sprintf("%s-%d", want, n)
	}
	return name
}

func (p *Policy) hasRule(name string) bool {
	if p == nil {
		return false
	}
	for i := range p.rules {
		if p.rules[i].name == name {
			return true
		}
	}
	return false
}

// nameable reports whether a pattern can stand for s and nothing else. A pod
// that asks for a path with a star in it must not get a star suggested.
func nameable(k kind, s string) bool {
	compile := CompileName
	switch k {
	case kindCDI:
		compile = compileCDI
	case kindSocket, kindDevice:
		compile = CompilePath
	}
	_, err := compile(s)
	return err == nil && !strings.Contains(s, "*") && strconv.CanBackquote(s) && strconv.QuoteToASCII(s) == strconv.Quote(s)
}

func (p *Policy) refuseUnclean(k kind, s Subject, name string) *RefusedError {
	e := &RefusedError{Subject: s, What: k.String(), Name: name,
		Why: "only an absolute path without //, /./, /../ and without / at the end is ever allowed"}
	if p != nil {
		e.Source = p.source
	}
	return e
}

func patterns(globs []Glob) []string {
	all := make([]string, len(globs))
	for i, g := range globs {
		all[i] = g.pattern
	}
	return all
}

// maxListed bounds the bytes of a rule's patterns that a message shows.
const maxListed = 160

// listed shows patterns, at least the first and as many as fit.
func listed(patterns []string) string {
	var b strings.Builder
	b.WriteByte('[')
	for i, p := range patterns {
		q := quote(p)
		if i > 0 {
			if b.Len()+len(q) > maxListed {
				fmt.Fprintf(&b, ", and %d more", len(patterns)-i)
				break
			}
			b.WriteString(", ")
		}
		b.WriteString(q)
	}
	return b.String() + "]"
}

// maxQuoted bounds the quoted form of a foreign name in a message, in bytes.
// A path of a socket that can be connected to is shown whole.
const maxQuoted = 112

// quote returns s quoted, in ASCII and of bounded length.
func quote(s string) string {
	cut := min(len(s), maxQuoted-2)
	for {
		q := strconv.QuoteToASCII(s[:cut])
		if len(q) <= maxQuoted {
			if cut < len(s) {
				q += fmt.Sprintf("... (%d bytes)", len(s))
			}
			return q
		}
		cut -= (len(q) - maxQuoted + 9) / 10
	}
}
