// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"maps"
	"sync"

	"github.com/jackfield/jackfield/internal/config/policy"
	"github.com/jackfield/jackfield/internal/edit"
)

// Ledger remembers what the containers of pods have, where a rule limits what a
// pod gets. It outlives an Engine, which is replaced with each configuration. A
// container is known by its name in the pod, so that a re-created one replaces the previous one.
// An ended container is dropped by its ID, which does not drop its replacement. The zero value is
// ready.
type Ledger struct {
	mu         sync.Mutex
	containers map[ledgerKey]containerUsage
}

type ledgerKey struct{ sandboxID, container string }

type containerUsage struct {
	id string // of the container
	policy.Usage
}

// RecordUsage records what a container has, as the adapter finds it after a restart.
func (l *Ledger) RecordUsage(sandboxID, container, containerID string, u policy.Usage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noteLocked(ledgerKey{sandboxID, container}, containerID, u)
}

func (l *Ledger) noteLocked(key ledgerKey, containerID string, u policy.Usage) {
	if l.containers == nil {
		l.containers = make(map[ledgerKey]containerUsage)
	}
	l.containers[key] = containerUsage{containerID, u}
}

// Drop removes a container that has ended or was not created.
func (l *Ledger) Drop(sandboxID, containerID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.containers, func(key ledgerKey, u containerUsage) bool { return key.sandboxID == sandboxID && u.id == containerID })
}

// usageOf returns what a container has.
func (l *Ledger) usageOf(sandboxID, container string) policy.Usage {
	if l == nil {
		return policy.Usage{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.containers[ledgerKey{sandboxID, container}].Usage
}

// Forget removes a pod.
func (l *Ledger) Forget(sandboxID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.containers, func(key ledgerKey, _ containerUsage) bool { return key.sandboxID == sandboxID })
}

// Retain removes the pods that are gone, and of the others the containers that have ended.
func (l *Ledger) Retain(alive, runs func(id string) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.containers, func(key ledgerKey, u containerUsage) bool { return !alive(key.sandboxID) || !runs(u.id) })
}

// reserve checks whether a container may have so much beside the others of its pod. Unless the plan
// is only shown, it records that in the same step: two containers cannot both get the last of it. What
// is recorded of the replacement of a container that runs stays: the container is about to end.
func (l *Ledger) reserve(req *Request, u policy.Usage, onlyShow, runs bool, check func(others policy.Usage) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var others policy.Usage
	own := ledgerKey{req.SandboxID, req.Container}
	for key, have := range l.containers {
		if key.sandboxID == own.sandboxID && key != own {
			others = others.Add(have.Usage)
		}
	}
	err := check(others)
	have, known := l.containers[own]
	if replaced := runs && known && have.id != req.ContainerID; err == nil && !onlyShow && !replaced {
		l.noteLocked(own, req.ContainerID, u)
	}
	return err
}

// checkLimits checks what the container gets against the rules' limits.
func (p *planner) checkLimits(u policy.Usage) error {
	if !p.policy.HasLimits() {
		return nil
	}
	check := func(others policy.Usage) error {
		refused, audited := p.policy.Limit(p.subject, u, others)
		if audited != nil && len(p.items) > 0 {
			p.items[len(p.items)-1].addAudit(audited)
		}
		return refused
	}
	if !p.policy.HasPodLimits(p.subject) {
		return check(policy.Usage{})
	}
	p.usage = &u
	if p.opts.Ledger == nil {
		return check(policy.Usage{})
	}
	return p.opts.Ledger.reserve(&p.req, u, p.explains, p.isolatesFailures, check)
}

// countUsage counts what the plan gives. The mounts of sockets count as sockets, and
// what Jackfield adds itself does not count.
func (p *planner) countUsage() policy.Usage {
	set := p.b.Edits()
	u := policy.Usage{CDI: len(p.devices), Devices: len(set.Devices), Hooks: len(set.Hooks)}
	for i := range set.Mounts {
		if s := set.Mounts[i].Origin.Source; s != edit.Attachment && s != edit.SourceJackfield {
			u.Mounts++
		}
	}
	for i := range p.view {
		if p.view[i].isSocket() {
			u.Sockets++
		}
	}
	return u
}
