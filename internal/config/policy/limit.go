// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/diag"
)

// Limits limit how much a rule's subjects get.
type Limits struct {
	// Container limits one container, Pod all containers of a pod together.
	Container, Pod Limit
}

// Limit is a number of each kind; 0 is no limit.
type Limit struct {
	// CDI counts CDI devices and Sockets counts sockets. Devices, Mounts and Hooks count edits,
	// including those of CDI devices. Ports counts ports of vswitches, which belong to a pod: a container has no limit
	// of them.
	CDI, Devices, Sockets, Mounts, Hooks, Ports int
}

// Usage is how much a container or a pod has, or will get.
type Usage Limit

// Add returns the sum.
func (u Usage) Add(v Usage) Usage {
	return Usage{CDI: u.CDI + v.CDI, Devices: u.Devices + v.Devices, Sockets: u.Sockets + v.Sockets, Mounts: u.Mounts + v.Mounts,
		Hooks: u.Hooks + v.Hooks, Ports: u.Ports + v.Ports}
}

// MaxLimit is the largest limit, far more than any container has.
const MaxLimit = 1 << 20

type limitField struct {
	kind  kind
	limit int
	usage int
}

func (l *Limit) fields(u Usage) [6]limitField {
	return [6]limitField{
		{kindCDI, l.CDI, u.CDI}, {kindDevice, l.Devices, u.Devices}, {kindSocket, l.Sockets, u.Sockets},
		{kindMount, l.Mounts, u.Mounts}, {kindHook, l.Hooks, u.Hooks}, {kindPort, l.Ports, u.Ports},
	}
}

// findFault returns the first limit that is out of range.
func (l *Limits) findFault() (field, found, rule string) {
	if n := l.Container.Ports; n != 0 {
		return "limits.container.ports", strconv.Itoa(n), "ports belong to the pod; set limits.pod.ports"
	}
	for _, part := range []struct {
		name  string
		limit *Limit
	}{{"container", &l.Container}, {"pod", &l.Pod}} {
		for _, f := range part.limit.fields(Usage{}) {
			if f.limit < 0 || f.limit > MaxLimit {
				return "limits." + part.name + "." + f.kind.listName(), strconv.Itoa(f.limit), fmt.Sprintf("must be a number from 1 to %d", MaxLimit)
			}
		}
	}
	return "", "", ""
}

// LimitError says that a container would exceed a limit of a rule. It unwraps to
// errdefs.ErrPermissionDenied.
type LimitError struct {
	// Rule is the name of the rule with the limit.
	Rule string
	// Field is the limit, such as limits.pod.sockets.
	Field string

	text string
}

// Error does not name the container: the error that it is part of does.
func (e *LimitError) Error() string { return e.text }

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
		e.text += " in " + p.source
		if unknown := r.unknownProperty(&s); unknown != "" {
			e.text += "; the rule " + unknown
		}
		if !r.audit && p.Mode() != Audit {
			return e, nil
		}
		if audited == nil {
			audited = e
		}
	}
	return nil, audited
}

// LimitPorts compares the ports of a pod that is to get one more with the limits of every rule for it, as Limit does.
// Ports are created before containers, so only the subject's namespace and pod are known, whatever else s has.
func (p *Policy) LimitPorts(s Subject, others int) (refused, audited error) {
	return p.Limit(portSubject(s), Usage{Ports: 1}, Usage{Ports: others})
}

// HasPortLimits reports whether some rule limits the ports of the subject's pod.
func (p *Policy) HasPortLimits(s Subject) bool {
	s = portSubject(s)
	return p != nil && slices.ContainsFunc(p.rules, func(r *rule) bool { return r.limits.Pod.Ports > 0 && r.restricts(&s) })
}

// exceeded returns the rule's first limit that would be exceeded. A pod's limit does not apply to a
// container that adds nothing to what is counted.
func (r *rule) exceeded(container, others Usage) *LimitError {
	for _, part := range []struct {
		name, where string
		limit       Limit
		usage       Usage
	}{{"container", "", r.limits.Container, container}, {"pod", " in one pod", r.limits.Pod, container.Add(others)}} {
		added := part.limit.fields(container)
		for i, f := range part.limit.fields(part.usage) {
			if f.limit > 0 && f.usage > f.limit && added[i].usage > 0 {
				field := "limits." + part.name + "." + f.kind.listName()
				return &LimitError{Rule: r.name, Field: field, text: fmt.Sprintf("deny %d %ss%s: rule %s has %s: %d; ask for fewer, or raise it",
					f.usage, f.kind, part.where, diag.Quote(r.name), field, f.limit)}
			}
		}
	}
	return nil
}
