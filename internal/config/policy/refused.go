// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/glob"
)

// RefusedError is the refusal of a request that no rule grants, with the lines that would grant it.
// It unwraps to errdefs.ErrPermissionDenied. Users read its text in "kubectl describe pod", which
// truncates an event after 1024 bytes. Programs use its fields, and [RefusedError.Item],
// [RefusedError.Reason] and [RefusedError.Remedy], the parts of the text.
type RefusedError struct {
	// Denied is set if Rule denies the item. Otherwise no rule grants it.
	Denied bool
	// Source is the file of the rules.
	Source string
	// Rule is the rule that denies the item or came closest to granting it, or empty.
	Rule string
	// Why is the property that did not match.
	Why string
	// Lines are the lines of YAML to add. There are none if no rule can match the name exactly.
	Lines []string
	// Under is the place for the lines: "policy.rules", "allow" of Rule, or a list of it, such as
	// "allow.sockets".
	Under string
	// Asked is the requested item, as an entry of a rule's list.
	Asked Asked

	item item
}

// Error does not contain the container's name: the enclosing error does.
func (e *RefusedError) Error() string {
	text := "deny " + e.Item() + ": " + e.Reason()
	if remedy := e.Remedy(); remedy != "" {
		text += "; to allow it, " + remedy
	}
	return text
}

// Item returns the requested item, such as `mount "/srv/a" at "/data"`.
func (e *RefusedError) Item() string { return e.item.describe() }

// Reason returns the rule that denies the item or came closest, and why.
func (e *RefusedError) Reason() string {
	switch {
	case e.Denied:
		return "denied by rule " + diag.Quote(e.Rule) + ": " + e.Why
	case e.Rule != "":
		return "closest rule " + diag.Quote(e.Rule) + ": " + e.Why
	}
	return e.Why
}

// Remedy returns the lines to add and their place, one a line. It is empty if no pattern can match
// the name exactly.
func (e *RefusedError) Remedy() string {
	if len(e.Lines) == 0 {
		return ""
	}
	return "add to " + e.RemedyPlace() + ":\n  " + strings.Join(e.Lines, "\n  ")
}

// Remedy holds the lines of YAML to add, and their place, to grant a refused request.
type Remedy struct {
	File  string   `json:"file"`           // the configuration
	Under string   `json:"under"`          // policy.rules, or allow or a list of it in Rule, such as allow.sockets
	Rule  string   `json:"rule,omitempty"` // absent for a new rule
	Lines []string `json:"lines"`
}

// RemedyData returns the remedy for programs, or nil if no rule can match the name exactly.
func (e *RefusedError) RemedyData() *Remedy {
	if len(e.Lines) == 0 {
		return nil
	}
	r := &Remedy{File: e.Source, Under: e.Under, Lines: e.Lines}
	if e.Under != underRules {
		r.Rule = e.Rule
	}
	return r
}

// RemedyPlace returns the list and the file to which to add Lines, such as `allow.sockets of rule
// "dpdk" in /etc/jackfield/config.yaml`.
func (e *RefusedError) RemedyPlace() string {
	under := e.Under
	if under != underRules {
		under += " of rule " + diag.Quote(e.Rule)
	}
	return under + " in " + e.Source
}

const (
	underRules = "policy.rules"
	underAllow = "allow"
)

// Unwrap returns errdefs.ErrPermissionDenied.
func (e *RefusedError) Unwrap() error { return errdefs.ErrPermissionDenied }

// closeness is the distance between a rule and a grant, from the farthest to the closest.
type closeness uint8

const (
	unrelated      closeness = iota
	otherSubject             // grants the item in other namespaces
	partialSubject           // grants the item in this namespace, but to other containers
	otherBoth                // grants the subject items of the kind, but from other networks and with other names
	otherKind                // grants the subject items of other kinds
	otherName                // grants the subject items of the kind with other names
	otherNetwork             // grants the subject the item, but from other networks
)

func (p *Policy) newRefusal(s *Subject, it *item) *RefusedError {
	return &RefusedError{Source: p.source, Asked: it.asked(s), item: *it}
}

// refuse returns a refusal with the closest rule, and the lines that would grant the item.
func (p *Policy) refuse(s *Subject, it *item) *RefusedError {
	e := p.newRefusal(s, it)
	if !s.takeExplanation() {
		e.Why = "no rule allows it"
		return e
	}
	var (
		closest *rule
		nearest closeness
		common  int
	)
	for _, r := range p.rules {
		if r.allow.isEmpty() || r.audit {
			continue // it grants nothing
		}
		part := r.mismatch(s, false)
		if most := maxCloseness(part); most < nearest || most == nearest && part != "" {
			continue // its patterns need no comparison
		}
		c, n := r.closeness(s, it, part)
		if c > nearest || c == nearest && n > common {
			closest, nearest, common = r, c, n
		}
	}
	switch {
	case len(p.rules) == 0:
		e.Why = "there are no rules, and what no rule allows is refused"
	case closest == nil:
		e.Why = "no rule is for this pod and none allows it to another"
	default:
		e.Rule = closest.name
		e.Why = closest.explainMismatch(s, it, nearest)
	}
	p.addRemedy(e, s, it, nearest)
	return e
}

// maxCloseness bounds the closeness of a rule. part is the part of its subjects that does not
// match, or "".
func maxCloseness(part string) closeness {
	switch part {
	case "":
		return otherNetwork
	case "namespaces":
		return otherSubject
	}
	return partialSubject
}

// closeness returns the rule's closeness and, to order equally close rules, the number of bytes
// that the name has in common with a pattern. part is the part of the rule's subjects that s does
// not match, or "".
func (r *rule) closeness(s *Subject, it *item, part string) (closeness, int) {
	matches := r.allow.granting(it) != ""
	if it.kind == kindNetwork {
		matches = r.allowsSocketsOrDevices() && r.allowsNetwork(s, it.name)
	}
	switch {
	case part != "" && matches:
		return maxCloseness(part), 0
	case part != "":
		return unrelated, 0
	case matches:
		return otherNetwork, 0
	case (it.kind == kindSocket || it.kind == kindDevice) && !r.allowsNetwork(s, s.Network):
		return otherBoth, 0
	}
	if len(r.allow[it.kind]) == 0 {
		return otherKind, 0
	}
	common := 0
	for _, p := range r.allow[it.kind] {
		common = max(common, commonPrefix(p.name.Prefix(), it.name))
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

// explainMismatch returns the property that kept the rule from granting.
func (r *rule) explainMismatch(s *Subject, it *item, c closeness) string {
	k := it.kind
	switch c {
	case otherNetwork, otherBoth:
		items := "it"
		if c == otherBoth {
			items = k.listName()
		}
		allows := "allows " + items + " from the networks " + listed(r.allow.patternTexts(kindNetwork))
		switch {
		case s.Network == "":
			return allows + ", and it comes from none here"
		case s.NetworkGuessed:
			return allows + ", and without Multus' record the namespace of network " + diag.Quote(s.Network) +
				" is unknown"
		}
		return allows + ", not from " + diag.Quote(s.Network)
	case otherName:
		has := "its allow." + k.listName() + " has " + listed(r.allow.patternTexts(k))
		if it.isNoIOMMU() {
			return has + ", and only a pattern that begins with " + noIOMMU +
				" grants a device without an IOMMU, which can access all memory of the host"
		}
		if it.whole {
			has += ", none of which covers everything below the directory"
		}
		return has
	case otherKind:
		if k == kindNetwork {
			return "it allows neither sockets nor devices, which are what networks deliver"
		}
		return "it has no allow." + k.listName()
	}
	// The subject does not match. An unknown property explains more than a different one.
	part := r.mismatch(s, false)
	switch {
	case part == "podLabels" && s.LabelsUnknown, part == "runtimeClasses" && s.HandlerUnknown, part == "images" &&
		s.Image == "":
		return r.unknownProperty(s)
	case part == "podLabels":
		for _, l := range r.labels {
			if value, ok := s.Labels[l.key]; !ok {
				return fmt.Sprintf("is for pods labelled %s=%s, and the pod has no such label", l.key, l.value)
			} else if !l.value.Match(value) {
				return fmt.Sprintf("is for pods labelled %s=%s, and the pod has %s", l.key, l.value, diag.Quote(value))
			}
		}
	case part == "runtimeClasses":
		classes := listed(quoteAll(r.handlers))
		if s.RuntimeHandler == "" {
			return "is for the runtime classes " + classes + ", and the pod has the default one"
		}
		return fmt.Sprintf("is for the runtime classes %s, not for %s", classes, diag.Quote(s.RuntimeHandler))
	case part == "images":
		return fmt.Sprintf("is for the images %s, not for %s", listed(quoteAll(r.images)), diag.Quote(s.Image))
	}
	namespaces := listed(quoteAll(r.namespaces))
	if s.Namespace == "" {
		return "is for the namespaces " + namespaces + ", and the container is in none"
	}
	return fmt.Sprintf("is for the namespaces %s, not for %s", namespaces, diag.Quote(s.Namespace))
}

// refuseMalformed refuses an item that no pattern can describe, so that a rule never decides about it.
func (p *Policy) refuseMalformed(s *Subject, it *item) *RefusedError {
	e := p.newRefusal(s, it)
	e.Why = "only an absolute path without //, /./, /../ and without / at the end is ever allowed"
	if it.kind == kindPort {
		e.Why = fmt.Sprintf("only a vswitch and a bridge without / in their names and a VLAN from 1 to %d are "+
			"ever allowed", maxVLAN)
	}
	return e
}

func quoteAll(patterns []glob.Glob) []string {
	all := make([]string, len(patterns))
	for i, p := range patterns {
		all[i] = diag.Quote(p.String())
	}
	return all
}

// maxListed bounds the bytes of a rule's patterns in a message.
const maxListed = 160

// listed lists quoted patterns: the first one, and as many more as fit.
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
