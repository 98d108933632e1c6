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
	// Lines are the lines of YAML to add: to policy.rules where NewRule, and
	// else to the allow of Rule. There are none where no pattern can name
	// what was asked for.
	Lines   []string
	NewRule bool
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
	case e.NewRule:
		fmt.Fprintf(&b, "; to allow it, add to policy.rules in %s:", e.Source)
	default:
		fmt.Fprintf(&b, "; to allow it, add to allow of rule %s in %s:", quote(e.Rule), e.Source)
	}
	for _, line := range e.Lines {
		b.WriteString("\n  " + line)
	}
	return b.String()
}

// Unwrap implements the errors package's protocol.
func (e *RefusedError) Unwrap() error { return errdefs.ErrPermissionDenied }

// closeness orders the ways in which a rule can fail to grant, the farthest
// first.
type closeness uint8

const (
	unrelated      closeness = iota
	otherSubject             // grants the thing, to others
	partialSubject           // the same, and the namespace is right
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
	list := r.allow[:][k%kinds]
	named := matchAny(list, name)
	if k == kindNetwork {
		list, named = r.networks, r.ofNetworks() && r.carries(name)
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
	case len(list) == 0:
		return otherKind, 0
	}
	common := 0
	for _, g := range list {
		common = max(common, commonPrefix(g.prefix, name))
	}
	return otherName, common
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
	case otherNetwork:
		if s.Network == "" {
			return "allows it from the networks " + listed(patterns(r.networks)) + ", and no network brings it here"
		}
		return fmt.Sprintf("allows it from the networks %s, not from %s", listed(patterns(r.networks)), quote(s.Network))
	case otherName:
		globs := r.networks
		if k != kindNetwork {
			globs = r.allow[k]
		}
		return "its allow." + k.field() + " has " + listed(patterns(globs))
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

// remedy writes the lines that would grant it.
func (p *Policy) remedy(e *RefusedError, k kind, c closeness) {
	name, field := e.Name, k.field()
	if c == otherNetwork {
		name, field = e.Subject.Network, kindNetwork.field()
	}
	if !nameable(name) {
		if name != "" {
			e.Why += "; the name holds characters that no rule can allow"
		}
		return
	}
	e.NewRule = c < otherKind || k == kindNetwork && c == otherKind
	if !e.NewRule {
		e.Lines = []string{field + ": [" + strconv.Quote(name) + "]"}
		return
	}
	if k == kindNetwork || !nameable(e.Subject.Namespace) {
		e.NewRule = false
		return
	}
	e.Lines = []string{
		"- name: " + p.freeName(e.Subject.Namespace+"-"+field),
		"  for: {namespaces: [" + strconv.Quote(e.Subject.Namespace) + "]}",
		"  allow: {" + field + ": [" + strconv.Quote(name) + "]}",
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
func nameable(s string) bool {
	if s == "" || len(s) > maxPattern {
		return false
	}
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || c == '*' || isReserved(c) {
			return false
		}
	}
	return true
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

// maxListed bounds how many patterns of a rule a message shows.
const maxListed = 4

func listed(patterns []string) string {
	more := ""
	if n := len(patterns); n > maxListed {
		patterns, more = patterns[:maxListed], fmt.Sprintf(", and %d more", n-maxListed)
	}
	quoted := make([]string, len(patterns))
	for i, p := range patterns {
		quoted[i] = quote(p)
	}
	return "[" + strings.Join(quoted, ", ") + more + "]"
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
