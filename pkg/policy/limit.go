// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"

	"github.com/containerd/errdefs"
)

// Limits bound how much a rule's subjects get.
type Limits struct {
	// Container bounds what one container gets, Pod what the containers of one
	// pod get together.
	Container, Pod Limit
}

// Limit is how many of each kind; 0 stands for no limit.
type Limit struct {
	// CDI counts CDI devices; Devices, Mounts and Hooks count edits, those of
	// CDI devices among them; Sockets counts sockets.
	CDI, Devices, Sockets, Mounts, Hooks int
}

// Usage is what a container, or a pod, has or is about to get.
type Usage Limit

// Add is the sum of two.
func (u Usage) Add(v Usage) Usage {
	return Usage{CDI: u.CDI + v.CDI, Devices: u.Devices + v.Devices, Sockets: u.Sockets + v.Sockets, Mounts: u.Mounts + v.Mounts, Hooks: u.Hooks + v.Hooks}
}

// maxLimit is far more than any container has.
const maxLimit = 1 << 20

type limitField struct {
	name  string
	field kind
	limit int
	usage int
}

func (l *Limit) fields(u Usage) [5]limitField {
	return [5]limitField{
		{"CDI devices", kindCDI, l.CDI, u.CDI}, {"device nodes", kindDevice, l.Devices, u.Devices}, {"sockets", kindSocket, l.Sockets, u.Sockets},
		{"mounts", kindMount, l.Mounts, u.Mounts}, {"hooks", kindHook, l.Hooks, u.Hooks},
	}
}

func (l *Limits) fault() (field, why string) {
	for _, part := range []struct {
		name  string
		limit *Limit
	}{{"container", &l.Container}, {"pod", &l.Pod}} {
		for _, f := range part.limit.fields(Usage{}) {
			if f.limit < 0 || f.limit > maxLimit {
				return "limits." + part.name + "." + f.field.field(), fmt.Sprintf("found %d, want 1 to %d", f.limit, maxLimit)
			}
		}
	}
	return "", ""
}

// LimitError says that a container would get more than a rule lets it have. It
// unwraps to errdefs.ErrPermissionDenied, and is a refusal as a *RefusedError is.
type LimitError struct {
	Subject Subject
	// Source is where the rules are from, Rule the name of the one that limits.
	Source, Rule string
	// Field is the limit, such as limits.pod.sockets.
	Field string
	// What is counted, its Limit, and how many it would be.
	What          string
	Limit, Wanted int
	// Unknown is what the rule goes by and nothing says of the container; empty for
	// nothing.
	Unknown string
}

// Error implements error.
func (e *LimitError) Error() string {
	unknown := ""
	if e.Unknown != "" {
		unknown = "; the rule " + e.Unknown
	}
	return fmt.Sprintf("refuse %d %s to %s: rule %s has %s: %d; ask for fewer, or raise it in %s%s",
		e.Wanted, e.What, e.Subject.who(), quote(e.Rule), e.Field, e.Limit, e.Source, unknown)
}

// Unwrap implements the errors package's protocol.
func (e *LimitError) Unwrap() error { return errdefs.ErrPermissionDenied }

// HasLimits reports whether some rule limits anything.
func (p *Policy) HasLimits() bool { return p != nil && p.limits }

// HasPodLimits reports whether some rule limits what the subject's pod gets, so
// that somebody has to count.
func (p *Policy) HasPodLimits(s Subject) bool {
	if !p.HasLimits() {
		return false
	}
	for i := range p.rules {
		if r := &p.rules[i]; r.limits.Pod != (Limit{}) && r.restricts(&s) {
			return true
		}
	}
	return false
}

// Limit compares what a container is about to get, and what the pod's other
// containers have, with the limits of every rule that is for it. The first
// result is the refusal; the second, where audit mode lets it through, what
// would have been refused.
func (p *Policy) Limit(s Subject, container, others Usage) (refused, audited error) {
	if !p.HasLimits() {
		return nil, nil
	}
	for i := range p.rules {
		r := &p.rules[i]
		if r.limits == (Limits{}) || !r.restricts(&s) {
			continue
		}
		e := r.exceeded(container, others)
		if e == nil {
			continue
		}
		e.Subject, e.Source, e.Rule, e.Unknown = s, p.source, r.name, r.unknown(&s)
		if !r.audit && p.Mode() == Enforce {
			return e, nil
		}
		if audited == nil {
			audited = e
		}
	}
	return nil, audited
}

// exceeded is the rule's first limit that would be passed. A limit of the pod is
// none for a container that adds nothing to it.
func (r *rule) exceeded(container, others Usage) *LimitError {
	for _, f := range r.limits.Container.fields(container) {
		if f.limit > 0 && f.usage > f.limit {
			return &LimitError{Field: "limits.container." + f.field.field(), What: f.name, Limit: f.limit, Wanted: f.usage}
		}
	}
	added := r.limits.Pod.fields(container)
	for i, f := range r.limits.Pod.fields(container.Add(others)) {
		if f.limit > 0 && f.usage > f.limit && added[i].usage > 0 {
			return &LimitError{Field: "limits.pod." + f.field.field(), What: f.name + " in one pod", Limit: f.limit, Wanted: f.usage}
		}
	}
	return nil
}
