// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"

	"github.com/containerd/errdefs"
)

// Mode says what becomes of a refusal.
type Mode string

const (
	// Enforce refuses what no rule grants.
	Enforce Mode = "enforce"
	// Audit grants it, and says that it would have been refused.
	Audit Mode = "audit"
)

// Subject is the container that a decision is about.
type Subject struct {
	Namespace, Pod, Container string
	// Labels are the pod's.
	Labels map[string]string
	// RuntimeHandler is the pod's runtime handler, empty for the default.
	RuntimeHandler string
	// Network is the network that brings the socket or device in question,
	// as namespace/name; empty where none does. Only Socket and Device look
	// at it: a rule with a list of networks is for these alone.
	Network string
}

// kind is a kind of thing to decide on.
type kind uint8

const (
	kindCDI kind = iota
	kindSocket
	kindDevice
	kindNetwork // what a rule says of networks narrows the others
	kinds
)

// String is the kind's name in messages.
func (k kind) String() string {
	return [kinds]string{"CDI device", "socket", "device node", "network"}[k]
}

// field is the kind's list in a rule's allow.
func (k kind) field() string {
	return [kinds]string{"cdi", "sockets", "devices", "networks"}[k]
}

// Grant is a decision in favour.
type Grant struct {
	// Rule is the name of the first rule in file order that grants it; empty
	// where Audited.
	Rule string
	// Audited is set where no rule grants it, and only audit mode does.
	// Refusal is then what enforce mode would have returned.
	Audited bool
	Refusal *RefusedError
}

// Administrator is the rule that AllowAll's grants name.
const Administrator = "(administrator)"

// Policy is a set of compiled rules. The zero value and nil refuse everything.
type Policy struct {
	source string
	mode   Mode
	all    bool
	rules  []rule
}

// New compiles rules. The source is where they are from, for messages: the
// configuration file's path. The error is a *RuleError, or unwraps to
// errdefs.ErrInvalidArgument.
func New(source string, mode Mode, rules []Rule) (*Policy, error) {
	if mode != Enforce && mode != Audit {
		return nil, fmt.Errorf("compile policy: policy.mode in %s: %s: want %s or %s: %w", source, quote(string(mode)), Enforce, Audit, errdefs.ErrInvalidArgument)
	}
	p := &Policy{source: source, mode: mode, rules: make([]rule, 0, len(rules))}
	first := make(map[string]int, len(rules))
	for i, r := range rules {
		c, err := compileRule(r)
		if at, ok := first[r.Name]; ok && err == nil {
			err = &RuleError{Rule: r.Name, Field: "name", Why: fmt.Sprintf("policy.rules[%d] has this name already", at)}
		}
		if err != nil {
			err.Source = source
			err.Field = fmt.Sprintf("policy.rules[%d].%s", i, err.Field)
			return nil, err
		}
		first[r.Name] = i
		p.rules = append(p.rules, c)
	}
	return p, nil
}

// AllowAll grants everything: for what the administrator asks for in person,
// on a command line.
func AllowAll() *Policy { return &Policy{source: "the command line", mode: Enforce, all: true} }

// Mode returns the policy's mode.
func (p *Policy) Mode() Mode {
	if p == nil || p.mode == "" {
		return Enforce
	}
	return p.mode
}

// CDI decides on a fully qualified CDI name, vendor.com/class=name. The error
// is a *RefusedError.
func (p *Policy) CDI(s Subject, name string) (Grant, error) { return p.decide(kindCDI, &s, name) }

// Socket decides on a socket's host path, which must be absolute and clean;
// any other is refused in every mode. The error is a *RefusedError.
func (p *Policy) Socket(s Subject, path string) (Grant, error) {
	return p.decide(kindSocket, &s, path)
}

// Device decides on a device node's host path, under the rules of Socket.
func (p *Policy) Device(s Subject, path string) (Grant, error) {
	return p.decide(kindDevice, &s, path)
}

// Network decides whether a network, named namespace/name, may bring the
// subject anything at all. What it brings is for Socket and Device to decide.
// Subject.Network is not looked at. The error is a *RefusedError.
func (p *Policy) Network(s Subject, name string) (Grant, error) {
	return p.decide(kindNetwork, &s, name)
}

func (p *Policy) decide(k kind, s *Subject, name string) (Grant, error) {
	if (k == kindSocket || k == kindDevice) && !cleanPath(name) {
		return Grant{}, p.refuseUnclean(k, *s, name)
	}
	if p != nil {
		if p.all {
			return Grant{Rule: Administrator}, nil
		}
		for i := range p.rules {
			if r := &p.rules[i]; r.grants(k, s, name) {
				return Grant{Rule: r.name}, nil
			}
		}
	}
	refusal := p.refuse(k, *s, name)
	if p.Mode() == Audit {
		return Grant{Audited: true, Refusal: refusal}, nil
	}
	return Grant{}, refusal
}

// grants reports whether the rule grants the subject the thing. The thing is
// compared before the subject: it tells rules apart sooner.
func (r *rule) grants(k kind, s *Subject, name string) bool {
	switch k {
	case kindCDI:
		return matchAny(r.allow[k], name) && r.matches(s)
	case kindNetwork:
		return r.ofNetworks() && r.carries(name) && r.matches(s)
	default:
		return matchAny(r.allow[k], name) && r.carries(s.Network) && r.matches(s)
	}
}

// ofNetworks reports whether the rule speaks of anything a network can bring.
func (r *rule) ofNetworks() bool {
	return len(r.allow[kindSocket]) > 0 || len(r.allow[kindDevice]) > 0
}
