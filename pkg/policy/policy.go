// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
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
	// LabelsUnknown is set where nothing says which labels the pod has. A rule that
	// goes by labels then grants the container nothing, and denies and limits as if
	// it were for it.
	LabelsUnknown bool
	// RuntimeHandler is the pod's runtime handler, empty for the default.
	RuntimeHandler string
	// HandlerUnknown is set where nothing says which the runtime handler is, with the
	// same effect on rules with a list of runtime classes.
	HandlerUnknown bool
	// Image is the container's image as the runtime names it, empty where it
	// is not known, with the same effect on rules with a list of images.
	Image string
	// Network is the network that brings the socket or device in question,
	// as namespace/name; empty where none does. Only Socket and Device look
	// at it: a rule with a list of networks is for these alone.
	Network string
	// NetworkGuessed is set where nothing trustworthy says in which namespace the
	// network is. Then its name, namespace-name, is denied under each name that it
	// can stand for, and allowed only by a pattern for every network, "*".
	NetworkGuessed bool
}

// kind is a kind of thing to decide on.
type kind uint8

const (
	kindCDI kind = iota
	kindSocket
	kindDevice
	kindMount
	kindHook
	kindNetwork // what a rule's allow says of networks narrows sockets and devices
	kinds
)

// String is the kind's name in messages.
func (k kind) String() string {
	return [kinds]string{"CDI device", "socket", "device node", "mount", "hook", "network"}[k]
}

// field is the kind's list in a rule's allow or deny.
func (k kind) field() string {
	return [kinds]string{"cdi", "sockets", "devices", "mounts", "hooks", "networks"}[k]
}

// ofPath reports whether things of the kind are host paths.
func (k kind) ofPath() bool { return k != kindCDI && k != kindNetwork }

// thing is what a decision is about.
type thing struct {
	kind kind
	name string // of a mount the source
	// at is a mount's destination, writable that it is not read-only.
	at       string
	writable bool
	// whole is set where it is a socket's directory with all that is below it.
	whole bool
}

// Grant is a decision in favour.
type Grant struct {
	// Rule is the name of the first rule in file order that grants it; empty
	// where none does, and only the policy's audit mode lets it through.
	Rule string
	// Audited is set where audit mode, the policy's or a rule's, lets through
	// what would be refused otherwise. Refusal is then what would have been
	// returned.
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
	denies bool // some rule does
	limits bool // some rule has some
}

// New compiles rules. The source is where they are from, for messages: the
// configuration file's path. The error joins a *RuleError for each fault, and unwraps to
// errdefs.ErrInvalidArgument.
func New(source string, mode Mode, rules []Rule) (*Policy, error) {
	if mode != Enforce && mode != Audit {
		return nil, fmt.Errorf("compile policy: policy.mode in %s: %s: want %s or %s: %w", source, quote(string(mode)), Enforce, Audit, errdefs.ErrInvalidArgument)
	}
	p := &Policy{source: source, mode: mode, rules: make([]rule, 0, len(rules))}
	first := make(map[string]int, len(rules))
	var all []error
	for i, r := range rules {
		c, faults := compileRule(r)
		if at, ok := first[r.Name]; ok && r.Name != "" {
			twice := &RuleError{Rule: r.Name, Field: "name", Why: fmt.Sprintf("policy.rules[%d] has this name already", at)}
			faults = append([]*RuleError{twice}, faults...)
		} else {
			first[r.Name] = i
		}
		for _, f := range faults {
			f.Source = source
			f.Field = fmt.Sprintf("policy.rules[%d].%s", i, f.Field)
			all = append(all, f)
		}
		p.rules = append(p.rules, c)
		p.denies = p.denies || !c.deny.empty()
		p.limits = p.limits || c.limits != Limits{}
	}
	if len(all) > 0 {
		return nil, errors.Join(all...)
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
func (p *Policy) CDI(s Subject, name string) (Grant, error) {
	return p.decide(&s, &thing{kind: kindCDI, name: name})
}

// Socket decides on a socket's host path, which must be absolute and clean;
// any other is refused in every mode. The error is a *RefusedError.
func (p *Policy) Socket(s Subject, path string) (Grant, error) {
	return p.decide(&s, &thing{kind: kindSocket, name: path})
}

// SocketDir decides on a directory of sockets that is handed over with everything below
// it, now and later. One pattern in force has to cover all of that, as "DIR/**" does, and
// no deny pattern may match the directory or anything below it. The path is under the
// rules of Socket.
func (p *Policy) SocketDir(s Subject, dir string) (Grant, error) {
	return p.decide(&s, &thing{kind: kindSocket, name: dir, whole: true})
}

// Device decides on a device node's host path, under the rules of Socket.
func (p *Policy) Device(s Subject, path string) (Grant, error) {
	return p.decide(&s, &thing{kind: kindDevice, name: path})
}

// Mount decides on the mount of a host path at a path in the container, both
// under the rules of Socket. What a CDI device or a network brings is not asked
// about here: a granted CDI name brings its mounts, a granted socket its
// directory.
func (p *Policy) Mount(s Subject, source, destination string, readOnly bool) (Grant, error) {
	return p.decide(&s, &thing{kind: kindMount, name: source, at: destination, writable: !readOnly})
}

// Hook decides on an OCI hook by the host path of its program, under the rules
// of Socket. A CDI device's hooks come with it and are not asked about.
func (p *Policy) Hook(s Subject, path string) (Grant, error) {
	return p.decide(&s, &thing{kind: kindHook, name: path})
}

// Network decides whether a network, named namespace/name, may bring the
// subject anything at all. What it brings is for Socket and Device to decide.
// Subject.Network is not used, Subject.NetworkGuessed is. The error is a *RefusedError.
func (p *Policy) Network(s Subject, name string) (Grant, error) {
	return p.decide(&s, &thing{kind: kindNetwork, name: name})
}

// SocketDenied is the *RefusedError by which a rule denies the socket, nil for none:
// what Socket would say of it, without asking whether any rule grants it. enforced is
// false where audit mode, the policy's or the rule's, lets it through.
func (p *Policy) SocketDenied(s Subject, path string) (denied *RefusedError, enforced bool) {
	return p.deniedSocket(&s, &thing{kind: kindSocket, name: path})
}

// SocketDirDenied is SocketDenied for what SocketDir decides on.
func (p *Policy) SocketDirDenied(s Subject, dir string) (denied *RefusedError, enforced bool) {
	return p.deniedSocket(&s, &thing{kind: kindSocket, name: dir, whole: true})
}

func (p *Policy) deniedSocket(s *Subject, t *thing) (denied *RefusedError, enforced bool) {
	if p == nil || p.all || !p.denies || !cleanPath(t.name) {
		return nil, false
	}
	return p.denied(s, t)
}

func (p *Policy) decide(s *Subject, t *thing) (Grant, error) {
	if t.kind.ofPath() && !cleanPath(t.name) || t.kind == kindMount && !cleanPath(t.at) {
		return Grant{}, p.refuseUnclean(*s, *t)
	}
	var denied *RefusedError
	if p != nil {
		if p.all {
			return Grant{Rule: Administrator}, nil
		}
		if p.denies {
			d, enforced := p.denied(s, t)
			if enforced {
				return Grant{}, d
			}
			denied = d
		}
		for i := range p.rules {
			if r := &p.rules[i]; !r.audit && r.grants(s, t) {
				return Grant{Rule: r.name, Audited: denied != nil, Refusal: denied}, nil
			}
		}
	}
	refusal := denied
	if refusal == nil {
		refusal = p.refuse(*s, *t)
	}
	if rule := p.onTrial(s, t); rule != "" || p.Mode() == Audit {
		return Grant{Rule: rule, Audited: true, Refusal: refusal}, nil
	}
	if denied != nil {
		// By a rule on trial, which refuses nothing: what stands in the way is that no
		// rule grants it.
		refusal = p.refuse(*s, *t)
	}
	return Grant{}, refusal
}

// onTrial is the first rule in audit mode that grants the thing, "" for none.
func (p *Policy) onTrial(s *Subject, t *thing) string {
	if p == nil {
		return ""
	}
	for i := range p.rules {
		if r := &p.rules[i]; r.audit && r.grants(s, t) {
			return r.name
		}
	}
	return ""
}

// grants reports whether the rule grants the subject the thing. The thing is
// compared before the subject: it tells rules apart sooner.
func (r *rule) grants(s *Subject, t *thing) bool {
	if t.kind == kindNetwork {
		return r.ofNetworks() && r.carries(s, t.name) && r.matches(s)
	}
	if !r.allow.has(t) {
		return false
	}
	if t.kind == kindSocket || t.kind == kindDevice {
		return r.carries(s, s.Network) && r.matches(s)
	}
	return r.matches(s)
}

// ofNetworks reports whether the rule speaks of anything a network can bring.
func (r *rule) ofNetworks() bool {
	return len(r.allow.lists[kindSocket]) > 0 || len(r.allow.lists[kindDevice]) > 0
}
