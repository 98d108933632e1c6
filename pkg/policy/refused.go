// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/wording"
)

// RefusedError says that no rule grants what was asked for, and what would. It
// unwraps to errdefs.ErrPermissionDenied. Its text is written for the person
// who reads it in "kubectl describe pod", where an event is cut after 1024
// bytes.
type RefusedError struct {
	Subject Subject
	// What kind of thing was asked for: "CDI device", "socket", "socket
	// directory", "device node", "mount", "hook" or "network".
	What string
	// Name of the thing asked for; of a mount the source.
	Name string
	// At is a mount's destination, empty for anything else.
	At string
	// Denied is set where Rule denies it, rather than none granting it.
	Denied bool
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
	fmt.Fprintf(&b, "refuse %s %s", e.What, quote(e.Name))
	if e.At != "" {
		b.WriteString(" at " + quote(e.At))
	}
	b.WriteString(" to " + e.Subject.who() + ": ")
	switch {
	case e.Denied:
		fmt.Fprintf(&b, "denied by rule %s: ", quote(e.Rule))
	case e.Rule != "":
		fmt.Fprintf(&b, "closest rule %s: ", quote(e.Rule))
	}
	b.WriteString(e.Why)
	if remedy := e.Remedy(); remedy != "" {
		b.WriteString("; to allow it, " + remedy)
	}
	return b.String()
}

// Remedy says where to add which lines, each on a line of its own after the first;
// empty where no pattern can name what was asked for.
func (e *RefusedError) Remedy() string {
	if len(e.Lines) == 0 {
		return ""
	}
	under := e.Under
	if e.Under != underRules {
		under += " of rule " + quote(e.Rule)
	}
	return "add to " + under + " in " + e.Source + ":\n  " + strings.Join(e.Lines, "\n  ")
}

// who is the container in messages.
func (s *Subject) who() string {
	who := "the container"
	if s.Container != "" {
		who = "container " + quote(s.Container)
	}
	if s.Namespace == "" && s.Pod == "" {
		return who + " outside of Kubernetes"
	}
	return who + " of pod " + quote(s.Namespace+"/"+s.Pod)
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

// denied finds the rule that denies the thing: the first that enforces it, or
// else the first on trial. enforced is false under audit mode.
func (p *Policy) denied(s *Subject, t *thing) (refusal *RefusedError, enforced bool) {
	for i := range p.rules {
		r := &p.rules[i]
		why := r.denies(s, t)
		if why == "" {
			continue
		}
		enforced = !r.audit && p.mode == Enforce
		if enforced || refusal == nil {
			refusal = newRefusal(*s, *t)
			refusal.Source, refusal.Rule, refusal.Denied = p.source, r.name, true
			refusal.Why = why + " in " + p.source + ", and what one rule denies no other allows"
		}
		if enforced {
			return refusal, true
		}
	}
	return refusal, false
}

// denies says by which pattern the rule denies the subject the thing, or "".
func (r *rule) denies(s *Subject, t *thing) string {
	if r.deny.empty() {
		return ""
	}
	field, pattern := t.kind, ""
	if t.kind == kindNetwork {
		pattern = r.deny.network(t.name)
	} else if pattern = r.deny.which(t); pattern == "" && s.Network != "" && (t.kind == kindSocket || t.kind == kindDevice) {
		field, pattern = kindNetwork, r.deny.network(s.Network)
	}
	within := ""
	switch {
	case pattern == "" && t.kind == kindMount:
		pattern, within = r.deny.mountBelow(t), ", which matches paths within the mount"
	case pattern == "" && t.whole:
		field, pattern, within = kindSocket, r.deny.socketWithin(t), ", which matches paths within the directory"
	}
	if pattern == "" || !r.restricts(s) {
		return ""
	}
	if field != kindMount {
		pattern = quote(pattern)
	}
	why := "its deny." + field.field() + " has " + pattern + within
	if unknown := r.unknown(s); unknown != "" {
		why += " (it " + unknown + ")"
	}
	return why
}

func newRefusal(s Subject, t thing) *RefusedError {
	what := t.kind.String()
	if t.whole {
		what = "socket directory"
	}
	return &RefusedError{Subject: s, What: what, Name: t.name, At: t.at}
}

// refuse finds the rule that came closest. It runs only on the way to an
// error.
func (p *Policy) refuse(s Subject, t thing) *RefusedError {
	e := newRefusal(s, t)
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
		if r.allow.empty() || r.audit {
			continue // it grants nothing to anybody
		}
		c, n := r.closeness(&s, &t)
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
		e.Why = closest.why(&s, &t, at)
	}
	p.remedy(e, t, at)
	return e
}

// closeness says how near the rule came, and for rules equally near how many
// bytes of the name agreed.
func (r *rule) closeness(s *Subject, t *thing) (closeness, int) {
	k := t.kind
	named := r.allow.has(t)
	if k == kindNetwork {
		named = r.ofNetworks() && r.carries(s, t.name)
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
	case (k == kindSocket || k == kindDevice) && !r.carries(s, s.Network):
		return otherBoth, 0
	}
	common, any := 0, false
	r.allow.prefixes(k, func(prefix string) {
		any = true
		common = max(common, commonPrefix(prefix, t.name))
	})
	if !any {
		return otherKind, 0
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
func (r *rule) why(s *Subject, t *thing, c closeness) string {
	k := t.kind
	switch c {
	case otherNetwork, otherBoth:
		verb := "allows it from the networks "
		if c == otherBoth {
			verb = "allows things from the networks "
		}
		if s.Network == "" {
			return verb + listed(quoted(r.allow.patterns(kindNetwork))) + ", and no network brings it here"
		}
		if s.NetworkGuessed {
			return verb + listed(quoted(r.allow.patterns(kindNetwork))) + ", and without Multus' record nothing says in which namespace network " + quote(s.Network) + " is"
		}
		return verb + listed(quoted(r.allow.patterns(kindNetwork))) + ", not from " + quote(s.Network)
	case otherName:
		has := "its allow." + k.field() + " has " + listed(r.allow.quoted(k))
		if t.whole {
			has += ", none of which covers everything below the directory"
		}
		return has
	case otherKind:
		if k == kindNetwork {
			return "it allows neither sockets nor devices, which is what networks bring"
		}
		return "it has no allow." + k.field()
	}
	switch r.mismatch(s) {
	case "podLabels":
		if s.LabelsUnknown {
			return r.unknown(s)
		}
		for _, l := range r.labels {
			if value, ok := s.Labels[l.key]; !ok {
				return fmt.Sprintf("is for pods labelled %s=%s, and the pod has no such label", l.key, l.value)
			} else if !l.value.Match(value) {
				return fmt.Sprintf("is for pods labelled %s=%s, and the pod has %s", l.key, l.value, quote(value))
			}
		}
	case "runtimeClasses":
		if s.HandlerUnknown {
			return r.unknown(s)
		}
		classes := listed(quoted(r.subjects.RuntimeClasses))
		if s.RuntimeHandler == "" {
			return "is for the runtime classes " + classes + ", and the pod has the default one"
		}
		return fmt.Sprintf("is for the runtime classes %s, not for %s", classes, quote(s.RuntimeHandler))
	case "images":
		if s.Image == "" {
			return "is for the images " + listed(quoted(r.subjects.Images)) + ", and the runtime does not say which this container has"
		}
		return fmt.Sprintf("is for the images %s, not for %s", listed(quoted(r.subjects.Images)), quote(s.Image))
	}
	namespaces := listed(quoted(r.subjects.Namespaces))
	if s.Namespace == "" {
		return "is for the namespaces " + namespaces + ", and the container is of none"
	}
	return fmt.Sprintf("is for the namespaces %s, not for %s", namespaces, quote(s.Namespace))
}

func (p *Policy) refuseUnclean(s Subject, t thing) *RefusedError {
	e := newRefusal(s, t)
	e.Why = "only an absolute path without //, /./, /../ and without / at the end is ever allowed"
	if p != nil {
		e.Source = p.source
	}
	return e
}

// quoted are the patterns of a kind for messages; those of mounts are lines of
// YAML already.
func (t *things) quoted(k kind) []string {
	if k == kindMount {
		return t.patterns(k)
	}
	return quoted(t.patterns(k))
}

func quoted(patterns []string) []string {
	all := make([]string, len(patterns))
	for i, p := range patterns {
		all[i] = quote(p)
	}
	return all
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

// listed shows quoted patterns, at least the first and as many as fit.
func listed(patterns []string) string {
	var b strings.Builder
	b.WriteByte('[')
	for i, q := range patterns {
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

func quote(s string) string { return wording.Quote(s, maxQuoted) }
