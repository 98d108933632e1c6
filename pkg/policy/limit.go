// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/containerd/errdefs"
)

// Limits limit how much a rule's subjects get.
type Limits struct {
	// Container limits one container, Pod all containers of a pod together.
	Container, Pod Limit
}

// Limit is a number of each kind; 0 is no limit.
type Limit struct {
	// CDI counts CDI devices and Sockets counts sockets. Devices, Mounts and Hooks count edits,
	// including those of CDI devices.
	CDI, Devices, Sockets, Mounts, Hooks int
}

// Usage is how much a container or a pod has, or will get.
type Usage Limit

// Add returns the sum.
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

// findFault returns the first limit that is out of range.
func (l *Limits) findFault() (field, found, rule string) {
	for _, part := range []struct {
		name  string
		limit *Limit
	}{{"container", &l.Container}, {"pod", &l.Pod}} {
		for _, f := range part.limit.fields(Usage{}) {
			if f.limit < 0 || f.limit > maxLimit {
				return "limits." + part.name + "." + f.field.listName(), strconv.Itoa(f.limit), fmt.Sprintf("want 1 to %d", maxLimit)
			}
		}
	}
	return "", "", ""
}

// LimitError says that a container would exceed a limit of a rule. It unwraps to
// errdefs.ErrPermissionDenied.
type LimitError struct {
	// Source is the file of the rules, Rule the name of the rule with the limit.
	Source, Rule string
	// Field is the limit, such as limits.pod.sockets.
	Field string
	// What is counted, Limit how many are allowed, Wanted how many there would be.
	What          string
	Limit, Wanted int
	// Unknown says which property of the container that the rule selects by is unknown, or is empty.
	Unknown string
}

// Error does not name the container: the error that it is part of does.
func (e *LimitError) Error() string {
	unknown := ""
	if e.Unknown != "" {
		unknown = "; the rule " + e.Unknown
	}
	return fmt.Sprintf("deny %d %s: rule %s has %s: %d; ask for fewer, or raise it in %s%s",
		e.Wanted, e.What, quote(e.Rule), e.Field, e.Limit, e.Source, unknown)
}

// Unwrap returns errdefs.ErrPermissionDenied.
func (e *LimitError) Unwrap() error { return errdefs.ErrPermissionDenied }

// HasLimits reports whether some rule limits anything.
func (p *Policy) HasLimits() bool {
	return p != nil && slices.ContainsFunc(p.rules, func(r *rule) bool { return r.limits != Limits{} })
}

// HasPodLimits reports whether some rule limits the subject's pod, so that the caller has to count
// what the pod's other containers have.
func (p *Policy) HasPodLimits(s Subject) bool {
	return p != nil && slices.ContainsFunc(p.rules, func(r *rule) bool { return r.limits.Pod != Limit{} && r.restricts(&s) })
}

// Limit compares what a container will get, and what the pod's other containers have, with the
// limits of every rule for it. refused is the refusal. audited is what audit mode lets through.
func (p *Policy) Limit(s Subject, container, others Usage) (refused, audited error) {
	if p == nil {
		return nil, nil
	}
	for _, r := range p.rules {
		e := r.exceeded(container, others)
		if e == nil || !r.restricts(&s) {
			continue
		}
		e.Source, e.Rule, e.Unknown = p.source, r.name, r.unknownProperty(&s)
		if !r.audit && p.Mode() != Audit {
			return e, nil
		}
		if audited == nil {
			audited = e
		}
	}
	return nil, audited
}

// exceeded returns the rule's first limit that would be exceeded. A pod's limit does not apply to a
// container that adds nothing to what is counted.
func (r *rule) exceeded(container, others Usage) *LimitError {
	for _, f := range r.limits.Container.fields(container) {
		if f.limit > 0 && f.usage > f.limit {
			return &LimitError{Field: "limits.container." + f.field.listName(), What: f.name, Limit: f.limit, Wanted: f.usage}
		}
	}
	added := r.limits.Pod.fields(container)
	for i, f := range r.limits.Pod.fields(container.Add(others)) {
		if f.limit > 0 && f.usage > f.limit && added[i].usage > 0 {
			return &LimitError{Field: "limits.pod." + f.field.listName(), What: f.name + " in one pod", Limit: f.limit, Wanted: f.usage}
		}
	}
	return nil
}
