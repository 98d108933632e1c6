// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/quantity"
)

// Limits bounds the number of items that a rule's subjects receive, and the memory that the rule's devices can pin.
type Limits struct {
	// Container limits one container, Pod all containers of a pod together.
	Container, Pod Limit
	// Memlock is the RLIMIT_MEMLOCK that a container needs for devices that the rule grants; 0 changes no limit.
	Memlock quantity.Memory
}

// hasCounts reports whether anything is counted.
func (l *Limits) hasCounts() bool { return l.Container != Limit{} || l.Pod != Limit{} }

// Limit is a number for each kind; 0 is unlimited.
type Limit struct {
	// CDI counts CDI devices and Sockets counts sockets. Devices, Mounts and Hooks count edits,
	// including the edits of CDI devices. Ports counts ports of vswitches. They belong to a pod, so
	// only the pod has a limit for them.
	CDI     int `json:"cdi"`
	Devices int `json:"devices"`
	Sockets int `json:"sockets"`
	Mounts  int `json:"mounts"`
	Hooks   int `json:"hooks"`
	Ports   int `json:"ports"`
}

// Usage is the number of items that a container or a pod has or will receive.
type Usage Limit

// Add returns the sum.
func (u Usage) Add(v Usage) Usage {
	return Usage{CDI: u.CDI + v.CDI, Devices: u.Devices + v.Devices, Sockets: u.Sockets + v.Sockets,
		Mounts: u.Mounts + v.Mounts,
		Hooks:  u.Hooks + v.Hooks, Ports: u.Ports + v.Ports}
}

// MaxLimit is the largest limit. It is far above the usage of any container.
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

// validate returns the first limit that is out of range.
func (l *Limits) validate() (field, found, rule string) {
	if n := l.Container.Ports; n != 0 {
		return "limits.container.ports", strconv.Itoa(n), "ports belong to the pod; set limits.pod.ports"
	}
	for _, part := range []struct {
		name  string
		limit *Limit
	}{{"container", &l.Container}, {"pod", &l.Pod}} {
		for _, f := range part.limit.fields(Usage{}) {
			if f.limit < 0 || f.limit > MaxLimit {
				return "limits." + part.name + "." +
					f.kind.listName(), strconv.Itoa(f.limit), fmt.Sprintf("must be a number from 1 to %d", MaxLimit)
			}
		}
	}
	return "", "", ""
}

// LimitError is the refusal of a container that would exceed a limit of a rule. It unwraps to
// errdefs.ErrPermissionDenied.
type LimitError struct {
	// Rule is the name of the rule with the limit.
	Rule string
	// Field is the limit, such as limits.pod.sockets.
	Field string

	text string
}

// Error does not contain the container's name: the enclosing error does.
func (e *LimitError) Error() string { return e.text }

// Unwrap returns errdefs.ErrPermissionDenied.
func (e *LimitError) Unwrap() error { return errdefs.ErrPermissionDenied }

// HasLimits reports whether some rule limits a number of items.
func (p *Policy) HasLimits() bool {
	return p != nil && slices.ContainsFunc(p.rules, func(r *rule) bool { return r.limits.hasCounts() })
}

// SelectsLabels reports whether a rule selects pods by their labels.
func (p *Policy) SelectsLabels() bool {
	return p != nil && slices.ContainsFunc(p.rules, func(r *rule) bool { return len(r.labels) > 0 })
}

// HasPodLimits reports whether a rule limits the subject's pod. The caller must then count the
// usage of the pod's other containers.
func (p *Policy) HasPodLimits(s Subject) bool {
	return p != nil && slices.ContainsFunc(p.rules,
		func(r *rule) bool { return r.limits.Pod != Limit{} && r.restricts(&s) })
}

// Limit compares the container's usage, and the pod's usage with others, with the limits of every
// rule for the subject. refused is the refusal. audited is a refusal that audit mode overrides.
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

// LimitPorts compares a pod's ports, and one more, with the limits of every rule for it, like
// Limit. Ports are created before containers, so only the subject's namespace and pod are used.
func (p *Policy) LimitPorts(s Subject, others int) (refused, audited error) {
	return p.Limit(portSubject(s), Usage{Ports: 1}, Usage{Ports: others})
}

// HasPortLimits reports whether some rule limits the ports of the subject's pod.
func (p *Policy) HasPortLimits(s Subject) bool {
	s = portSubject(s)
	return p != nil && slices.ContainsFunc(p.rules,
		func(r *rule) bool { return r.limits.Pod.Ports > 0 && r.restricts(&s) })
}

// exceeded returns the rule's first exceeded limit. A pod's limit does not apply to a container
// that adds nothing to the counted kind.
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
				return &LimitError{Rule: r.name, Field: field,
					text: fmt.Sprintf("deny %d %ss%s: rule %s has %s: %d; ask for fewer, or raise it",
						f.usage, f.kind, part.where, diag.Quote(r.name), field, f.limit)}
			}
		}
	}
	return nil
}

// Memlock returns the limit of locked memory that the devices of a rule bring, 0 for none.
func (p *Policy) Memlock(ruleName string) quantity.Memory {
	if p == nil || ruleName == "" {
		return 0
	}
	i := slices.IndexFunc(p.rules, func(r *rule) bool { return r.name == ruleName })
	if i < 0 {
		return 0
	}
	return p.rules[i].limits.Memlock
}

// WithoutMemlock returns the names of the rules that allow one of the device nodes and set no limit of locked memory.
func (p *Policy) WithoutMemlock(paths []string) (names []string) {
	for _, r := range p.rules {
		allows := func(path string) bool { return r.allow.granting(&item{kind: kindDevice, name: path}) != "" }
		if r.limits.Memlock == 0 && slices.ContainsFunc(paths, allows) {
			names = append(names, r.name)
		}
	}
	return names
}
