// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"slices"

	"github.com/jackfield/jackfield/internal/base/diag"
)

// Mode is the effect of a refusal.
type Mode string

const (
	// Enforce refuses everything that no rule grants.
	Enforce Mode = "enforce"
	// Audit grants requests that Enforce would refuse, and reports them.
	Audit Mode = "audit"
)

// Subject is the container of a decision. Its JSON is the "for" of a policy test case.
type Subject struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Container string `json:"container"`
	// Labels are the pod's labels.
	Labels map[string]string `json:"labels"`
	// LabelsUnknown is set if the labels of the pod are unknown. A rule that selects by labels then
	// grants nothing, but its denials and limits apply.
	LabelsUnknown bool `json:"-"`
	// RuntimeHandler is the pod's runtime handler. Empty is the default handler.
	RuntimeHandler string `json:"runtimeClass"`
	// HandlerUnknown is set if the runtime handler is unknown, with the same effect on rules with
	// runtime classes.
	HandlerUnknown bool `json:"-"`
	// Image is the container's image in the runtime's spelling. Empty is unknown, with the same
	// effect on rules with images.
	Image string `json:"image"`
	// Network is the network of a socket or device, as namespace/name, or empty. Only Socket and
	// Device use it, because a rule's networks narrow only these.
	Network string `json:"network"`
	// NetworkGuessed is set if no trusted source has the network's namespace. The name then has the
	// form namespace-name. It is denied under every name that it can stand for, and only the
	// pattern "*" allows it.
	NetworkGuessed bool `json:"-"`
	// Explanations is the number of further refusals that contain the closest rule and a remedy.
	// Each of them compares the patterns of every rule, and a tenant can cause a thousand refusals.
	// nil is unlimited.
	Explanations *int `json:"-"`
}

// takeExplanation reports whether a refusal can contain the closest rule, and decrements the count.
func (s *Subject) takeExplanation() bool {
	if s.Explanations == nil {
		return true
	}
	*s.Explanations--
	return *s.Explanations >= 0
}

// Grant is a decision to allow.
type Grant struct {
	// Rule is the first rule in file order that grants the item. It is empty if only the policy's
	// audit mode allows the item.
	Rule string
	// Audited is set if audit mode, of the policy or of a rule, overrides a refusal. Refusal is
	// then the error of mode enforce.
	Audited bool
	Refusal *RefusedError
	// Asked is the requested item.
	Asked Asked
}

// strength orders the grants of one object under several names: none, by audit mode alone, by a
// rule in audit mode, by a rule in force.
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

// Administrator is the rule in AllowAll's grants.
const Administrator = "(administrator)"

// Policy is a set of compiled rules. The zero value and nil refuse everything.
type Policy struct {
	source string
	mode   Mode
	all    bool
	rules  []*rule
}

// New compiles rules. Messages refer to source, the path of the configuration file. The error joins
// a *diag.Diagnostic for each fault and unwraps to errdefs.ErrInvalidArgument.
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
		if other, ok := first[r.Name]; ok && r.Name != "" {
			f.addFault("name", diag.Quote(r.Name), fmt.Sprintf("policy.rules[%d] has this name already", other))
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

// AllowAll grants everything, for requests from the administrator's command line.
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

// Socket decides on a socket's host path, which must be absolute and clean. Any other path is
// refused in every mode. The error is a *RefusedError.
func (p *Policy) Socket(s Subject, path string) (Grant, error) {
	return p.decide(&s, &item{kind: kindSocket, name: path})
}

// Device decides on a device node's host path, with the same requirements as Socket.
func (p *Policy) Device(s Subject, path string) (Grant, error) {
	return p.decide(&s, &item{kind: kindDevice, name: path})
}

// RefuseDevices returns the refusal of device nodes that an application needs together and of which none is granted.
// The error is about a denied node, or else about the first node. Its remedy has the lines for all nodes.
func (p *Policy) RefuseDevices(s Subject, paths []string) error {
	unexplained := s
	unexplained.Explanations = new(int)
	for _, path := range paths {
		_, err := p.Device(unexplained, path)
		if refused, ok := errors.AsType[*RefusedError](err); ok && refused.Denied {
			return err
		}
	}
	_, err := p.decide(&s, &item{kind: kindDevice, name: paths[0], more: paths[1:]})
	return err
}

// FileSystem decides on a mount that is not a bind mount. A rule allows it by its type, because the
// options of a file system can name further sources.
func (p *Policy) FileSystem(s Subject, fsType, destination string, readOnly bool) (Grant, error) {
	return p.decide(&s, &item{kind: kindMount, fsType: fsType, destination: destination, writable: !readOnly})
}

// Mount decides on a bind mount of a host path. Both paths have the same requirements as in Socket.
// The mounts of a granted CDI device and the directory of a granted socket are granted with it.
func (p *Policy) Mount(s Subject, source, destination string, readOnly bool) (Grant, error) {
	return p.decide(&s, &item{kind: kindMount, name: source, destination: destination, writable: !readOnly})
}

// Hook decides on an OCI hook by the host path of its program, with the same requirements as
// Socket. The hooks of a granted CDI device are granted with it.
func (p *Policy) Hook(s Subject, path string) (Grant, error) {
	return p.decide(&s, &item{kind: kindHook, name: path})
}

// Network decides whether a network, namespace/name, can deliver anything to the subject. Socket
// and Device decide on each socket and device. Network uses Subject.NetworkGuessed, but not
// Subject.Network. The error is a *RefusedError.
func (p *Policy) Network(s Subject, name string) (Grant, error) {
	return p.decide(&s, &item{kind: kindNetwork, name: name})
}

// decide checks in this order: the form of the name, denials in force, rules in force, and rules or
// a policy in audit mode.
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
	// A denial that audit mode overrides is not the reason of a refusal: without a grant, the
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

// grantingRule returns the first rule that grants the item, among the rules in audit mode or in
// force, or "".
func (p *Policy) grantingRule(s *Subject, it *item, audit bool) string {
	i := slices.IndexFunc(p.rules, func(r *rule) bool { return r.audit == audit && r.grants(s, it) })
	if i < 0 {
		return ""
	}
	return p.rules[i].name
}

// grants reports whether the rule grants the item to the subject. It checks the subject first, so
// that rules for other subjects cost no pattern comparison.
func (r *rule) grants(s *Subject, it *item) bool {
	switch {
	case !r.matches(s):
		return false
	case it.kind == kindNetwork:
		return r.allowsSocketsOrDevices() && r.allowsNetwork(s, it.name)
	case (it.kind == kindSocket || it.kind == kindDevice) && !r.allowsNetwork(s, s.Network):
		return false
	}
	return r.allow.granting(it) != ""
}

// allowsSocketsOrDevices reports whether the rule allows an item that a network can deliver.
func (r *rule) allowsSocketsOrDevices() bool {
	return len(r.allow[kindSocket]) > 0 || len(r.allow[kindDevice]) > 0
}

// denied returns the refusal by the first rule in force that denies the item, or otherwise by the
// first rule in audit mode. enforced is false if audit mode overrides the refusal.
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

// denies returns the reason why the rule denies the item to the subject, with the matching pattern,
// or "".
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
