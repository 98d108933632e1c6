// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/glob"
)

// RefusedError says that no rule grants what was asked for, and which lines would. It unwraps to
// errdefs.ErrPermissionDenied. A person reads its text in "kubectl describe pod", where an event is
// cut after 1024 bytes. Other readers use its fields and [RefusedError.Item], [RefusedError.Reason]
// and [RefusedError.Remedy], of which the text consists.
type RefusedError struct {
	// Denied is set where Rule denies it. Otherwise no rule grants it.
	Denied bool
	// Source is the file of the rules.
	Source string
	// Rule is the rule that denies it or came closest to granting it, or empty.
	Rule string
	// Why says what did not match.
	Why string
	// Lines are the lines of YAML to add; none where no rule can match the name exactly.
	Lines []string
	// Under is where to add the lines: "policy.rules", or "allow" or a list of it in Rule, such as
	// "allow.sockets".
	Under string
	// Asked is what was asked for, as a list of a rule has it.
	Asked Asked

	item item
}

// Error does not name the container: the error that it is part of does.
func (e *RefusedError) Error() string {
	text := "deny " + e.Item() + ": " + e.Reason()
	if remedy := e.Remedy(); remedy != "" {
		text += "; to allow it, " + remedy
	}
	return text
}

// Item returns what was asked for, such as `mount "/srv/a" at "/data"`.
func (e *RefusedError) Item() string { return e.item.describe() }

// Reason returns the rule that denies it or came closest, and why.
func (e *RefusedError) Reason() string {
	switch {
	case e.Denied:
		return "denied by rule " + diag.Quote(e.Rule) + ": " + e.Why
	case e.Rule != "":
		return "closest rule " + diag.Quote(e.Rule) + ": " + e.Why
	}
	return e.Why
}

// Remedy says where to add which lines, each on a line of its own after the first; empty where no
// pattern can name what was asked for.
func (e *RefusedError) Remedy() string {
	if len(e.Lines) == 0 {
		return ""
	}
	return "add to " + e.RemedyPlace() + ":\n  " + strings.Join(e.Lines, "\n  ")
}

// Remedy is where to add which lines of YAML, so that a refused request is granted.
type Remedy struct {
	File  string   `json:"file"`           // the configuration
	Under string   `json:"under"`          // policy.rules, or allow or a list of it in Rule, such as allow.sockets
	Rule  string   `json:"rule,omitempty"` // absent for a new rule
	Lines []string `json:"lines"`
}

// RemedyData returns the remedy for programs; nil where no rule can match the name exactly.
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

// RemedyPlace names the list and file to which to add Lines, such as `allow.sockets of rule "dpdk"
// in /etc/jackfield/config.yaml`.
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

// closeness orders the ways in which a rule can fail to grant, from the farthest to the closest.
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

// refuse returns a refusal with the rule that came closest and the lines that would grant the item.
func (p *Policy) refuse(s *Subject, it *item) *RefusedError {
	e := p.newRefusal(s, it)
	if !s.takeExplanation() {
		e.Why = "no rule allows it"
		return e
	}
	var (
		closest *rule
		at      closeness
		common  int
	)
	for _, r := range p.rules {
		if r.allow.isEmpty() || r.audit {
			continue // it grants nothing
		}
		part := r.mismatch(s, false)
		if most := maxCloseness(part); most < at || most == at && part != "" {
			continue // its patterns need no comparison
		}
		c, n := r.closeness(s, it, part)
		if c > at || c == at && n > common {
			closest, at, common = r, c, n
		}
	}
	switch {
	case len(p.rules) == 0:
		e.Why = "there are no rules, and what no rule allows is refused"
	case closest == nil:
		e.Why = "no rule is for this pod and none allows it to another"
	default:
		e.Rule = closest.name
		e.Why = closest.explainMismatch(s, it, at)
	}
	p.addRemedy(e, s, it, at)
	return e
}

// maxCloseness returns how close a rule can come whose subjects do not match in the part, or match if it is "".
func maxCloseness(part string) closeness {
	switch part {
	case "":
		return otherNetwork
	case "namespaces":
		return otherSubject
	}
	return partialSubject
}

// closeness says how close the rule came and, to order equally close rules, how many bytes of the
// name agreed. part is the part of the rule's subjects that s does not match, or "".
func (r *rule) closeness(s *Subject, it *item, part string) (closeness, int) {
	named := r.allow.matching(it) != ""
	if it.kind == kindNetwork {
		named = r.allowsSocketsOrDevices() && r.allowsNetwork(s, it.name)
	}
	switch {
	case part != "" && named:
		return maxCloseness(part), 0
	case part != "":
		return unrelated, 0
	case named:
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

// explainMismatch says what kept the rule from granting.
func (r *rule) explainMismatch(s *Subject, it *item, c closeness) string {
	k := it.kind
	switch c {
	case otherNetwork, otherBoth:
		what := "it"
		if c == otherBoth {
			what = k.listName()
		}
		allows := "allows " + what + " from the networks " + listed(r.allow.patternTexts(kindNetwork))
		switch {
		case s.Network == "":
			return allows + ", and it comes from none here"
		case s.NetworkGuessed:
			return allows + ", and without Multus' record the namespace of network " + diag.Quote(s.Network) + " is unknown"
		}
		return allows + ", not from " + diag.Quote(s.Network)
	case otherName:
		has := "its allow." + k.listName() + " has " + listed(r.allow.patternTexts(k))
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
	part := r.mismatch(s, false)
	switch {
	case part == "podLabels" && s.LabelsUnknown, part == "runtimeClasses" && s.HandlerUnknown, part == "images" && s.Image == "":
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

func (p *Policy) refuseMalformed(s *Subject, it *item) *RefusedError {
	e := p.newRefusal(s, it)
	e.Why = "only an absolute path without //, /./, /../ and without / at the end is ever allowed"
	if it.kind == kindPort {
		e.Why = fmt.Sprintf("only a vswitch and a bridge without / in their names and a VLAN from 1 to %d are ever allowed", maxVLAN)
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

// maxListed bounds the bytes of a rule's patterns that a message shows.
const maxListed = 160

// listed lists quoted patterns, at least the first and as many as fit.
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
