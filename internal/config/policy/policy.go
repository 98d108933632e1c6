// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"slices"

	"github.com/jackfield/jackfield/internal/base/diag"
)

// Mode says what happens to a refusal.
type Mode string

const (
	// Enforce refuses what no rule grants.
	Enforce Mode = "enforce"
	// Audit grants it, and reports that it would have been refused.
	Audit Mode = "audit"
)

// Subject is the container that a decision is about. Its JSON is the "for" of a test case of policies.
type Subject struct {
	Namespace, Pod, Container string
	// Labels are the pod's.
	Labels map[string]string
	// LabelsUnknown is set where the labels of the pod are unknown. A rule that selects by labels
	// then grants the container nothing, but its denials and limits apply.
	LabelsUnknown bool `json:"-"`
	// RuntimeHandler is the pod's runtime handler. Empty is the default one.
	RuntimeHandler string `json:"runtimeClass"`
	// HandlerUnknown is set where the runtime handler is unknown, with the same effect on rules
	// with runtime classes.
	HandlerUnknown bool `json:"-"`
	// Image is the container's image, as the runtime names it. Empty is unknown, with the same
	// effect on rules with images.
	Image string
	// Network is the network that a socket or device belongs to, as namespace/name, or empty. Only
	// Socket and Device use it, because only they are narrowed by a rule's networks.
	Network string
	// NetworkGuessed is set where no trusted source has the network's namespace. Then the name,
	// namespace-name, is denied under every name that it can stand for. Only the pattern for every
	// network, "*", allows it.
	NetworkGuessed bool `json:"-"`
	// Explanations is how many more refusals name the closest rule and a remedy. Each of them compares the patterns of
	// every rule, and a pod can have a thousand refusals. nil is no bound.
	Explanations *int `json:"-"`
}

// takeExplanation reports whether a refusal names the closest rule, and counts it.
func (s *Subject) takeExplanation() bool {
	if s.Explanations == nil {
		return true
	}
	*s.Explanations--
	return *s.Explanations >= 0
}

// Grant is a decision to allow.
type Grant struct {
	// Rule is the first rule in file order that grants the item. It is empty where only the
	// policy's audit mode lets the item through.
	Rule string
	// Audited is set where audit mode, the policy's or a rule's, lets through what would be refused
	// otherwise. Refusal is then the error of mode enforce.
	Audited bool
	Refusal *RefusedError
	// Asked is what the decision is about.
	Asked Asked
}

// strength orders grants of one thing under several names: by audit mode alone, by a rule in audit mode, and by a
// rule in force. It is 0 for no grant.
func (g Grant) strength() int {
	switch {
	case g.Rule != "" && !g.Audited:
		return 3
	case g.Rule != "":
		return 2
	case g.Audited:
		return 1
	}
	return 0
}

// Administrator is the rule that AllowAll's grants name.
const Administrator = "(administrator)"

// Policy is a set of compiled rules. The zero value and nil refuse everything.
type Policy struct {
	source string
	mode   Mode
	all    bool
	rules  []*rule
}

// New compiles rules. Messages name source, the path of the configuration file. The error joins a
// *diag.Diagnostic for each fault and unwraps to errdefs.ErrInvalidArgument.
func New(source string, mode Mode, rules []Rule) (*Policy, error) {
	f := &faults{file: source}
	if mode != Enforce && mode != Audit {
		f.rule = "policy"
		f.addFault("mode", diag.Quote(string(mode)), fmt.Sprintf("must be %s or %s", Enforce, Audit))
	}
	p := &Policy{source: source, mode: mode}
	first := make(map[string]int, len(rules))
	for i, r := range rules {
		f.rule = fmt.Sprintf("policy.rules[%d]", i)
		if at, ok := first[r.Name]; ok && r.Name != "" {
			f.addFault("name", diag.Quote(r.Name), fmt.Sprintf("policy.rules[%d] has this name already", at))
		} else {
			first[r.Name] = i
		}
		p.rules = append(p.rules, f.compileRule(r))
	}
	if len(f.list) > 0 {
		return nil, errors.Join(f.list...)
	}
	return p, nil
}

// AllowAll grants everything. It is for requests that the administrator makes on a command line.
func AllowAll() *Policy { return &Policy{source: "the command line", mode: Enforce, all: true} }

// Mode returns the policy's mode.
func (p *Policy) Mode() Mode {
	if p == nil || p.mode == "" {
		return Enforce
	}
	return p.mode
}

// CDI decides on a fully qualified CDI name, vendor.com/class=name. The error is a *RefusedError.
func (p *Policy) CDI(s Subject, name string) (Grant, error) {
	return p.decide(&s, &item{kind: kindCDI, name: name})
}

// Socket decides on a socket's host path, which must be absolute and clean. Every other path is
// refused in every mode. The error is a *RefusedError.
func (p *Policy) Socket(s Subject, path string) (Grant, error) {
	return p.decide(&s, &item{kind: kindSocket, name: path})
}

// Device decides on a device node's host path, which follows the rules of Socket.
func (p *Policy) Device(s Subject, path string) (Grant, error) {
	return p.decide(&s, &item{kind: kindDevice, name: path})
}

// FileSystem decides on the mount of a file system that is no bind mount. A rule allows it by its type, whatever
// its source and options are.
func (p *Policy) FileSystem(s Subject, fsType, destination string, readOnly bool) (Grant, error) {
	return p.decide(&s, &item{kind: kindMount, fsType: fsType, destination: destination, writable: !readOnly})
}

// Mount decides on the mount of a host path at a path in the container. Both follow the rules of
// Socket. The mounts of a granted CDI device and the directory of a granted socket need no decision
// of their own.
func (p *Policy) Mount(s Subject, source, destination string, readOnly bool) (Grant, error) {
	return p.decide(&s, &item{kind: kindMount, name: source, destination: destination, writable: !readOnly})
}

// Hook decides on an OCI hook by the host path of its program, which follows the rules of Socket.
// The hooks of a granted CDI device need no decision of their own.
func (p *Policy) Hook(s Subject, path string) (Grant, error) {
	return p.decide(&s, &item{kind: kindHook, name: path})
}

// Network decides whether a network, named namespace/name, may deliver anything to the subject.
// Socket and Device decide on each socket and device. Network uses Subject.NetworkGuessed, but not
// Subject.Network. The error is a *RefusedError.
func (p *Policy) Network(s Subject, name string) (Grant, error) {
	return p.decide(&s, &item{kind: kindNetwork, name: name})
}

func (p *Policy) decide(s *Subject, it *item) (Grant, error) {
	if p == nil {
		p = &Policy{}
	}
	switch {
	case !it.isWellFormed():
		return Grant{}, p.refuseMalformed(s, it)
	case p.all:
		return Grant{Rule: Administrator}, nil
	}
	denied, enforced := p.denied(s, it)
	if enforced {
		return Grant{}, denied
	}
	if rule := p.grantingRule(s, it, false); rule != "" {
		return Grant{Rule: rule, Audited: denied != nil, Refusal: denied, Asked: it.asked(s)}, nil
	}
	// A denial that audit mode lets through refuses nothing. Without audit mode's grant, the
	// reason is that no rule grants the item.
	trial := p.grantingRule(s, it, true)
	if trial == "" && p.Mode() != Audit {
		return Grant{}, p.refuse(s, it)
	}
	if denied == nil {
		denied = p.refuse(s, it)
	}
	return Grant{Rule: trial, Audited: true, Refusal: denied, Asked: it.asked(s)}, nil
}

// grantingRule returns the first rule in audit mode, or in force, that grants the item, or "".
func (p *Policy) grantingRule(s *Subject, it *item, audit bool) string {
	i := slices.IndexFunc(p.rules, func(r *rule) bool { return r.audit == audit && r.grants(s, it) })
	if i < 0 {
		return ""
	}
	return p.rules[i].name
}

// grants reports whether the rule grants the subject the item. A rule for other subjects compares no pattern.
func (r *rule) grants(s *Subject, it *item) bool {
	switch {
	case !r.matches(s):
		return false
	case it.kind == kindNetwork:
		return r.allowsSocketsOrDevices() && r.allowsNetwork(s, it.name)
	case (it.kind == kindSocket || it.kind == kindDevice) && !r.allowsNetwork(s, s.Network):
		return false
	}
	return r.allow.matching(it) != ""
}

// allowsSocketsOrDevices reports whether the rule allows anything that a network can deliver.
func (r *rule) allowsSocketsOrDevices() bool {
	return len(r.allow[kindSocket]) > 0 || len(r.allow[kindDevice]) > 0
}

// denied returns the refusal by the first rule in force that denies the item, or else by the first
// in audit mode. enforced is false where audit mode lets the item through.
func (p *Policy) denied(s *Subject, it *item) (refusal *RefusedError, enforced bool) {
	for _, r := range p.rules {
		why := r.denies(s, it)
		if why == "" {
			continue
		}
		enforced = !r.audit && p.Mode() != Audit
		if enforced || refusal == nil {
			refusal = p.newRefusal(s, it)
			refusal.Rule, refusal.Denied = r.name, true
			refusal.Asked.DeniedBy = r.name
			refusal.Why = why + " in " + p.source + ", and what one rule denies no other allows"
		}
		if enforced {
			return refusal, true
		}
	}
	return refusal, false
}

// denies says by which pattern the rule denies the subject the item, or "".
func (r *rule) denies(s *Subject, it *item) string {
	if r.deny.isEmpty() || !r.restricts(s) {
		return ""
	}
	list, text, within := it.kind, r.deny.matching(it), ""
	switch {
	case it.kind == kindNetwork:
		text = r.deny.matchingNetwork(it.name)
	case text == "" && s.Network != "" && (it.kind == kindSocket || it.kind == kindDevice):
		list, text = kindNetwork, r.deny.matchingNetwork(s.Network)
	}
	if text == "" {
		list, text, within = it.kind, r.deny.findPattern(it, (*pattern).matchesWithin), ", which matches "+it.within()
	}
	if text == "" {
		return ""
	}
	why := "its deny." + list.listName() + " has " + text + within
	if unknown := r.unknownProperty(s); unknown != "" {
		why += " (it " + unknown + ")"
	}
	return why
}
