// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"maps"
	"sync"

	"github.com/jackfield/jackfield/pkg/deviceinfo"
	"github.com/jackfield/jackfield/pkg/edits"
	"github.com/jackfield/jackfield/pkg/policy"
)

// Ledger remembers what the containers of pods have, where a rule limits what a
// pod gets. It outlives an Engine: a new configuration does not forget. A
// container is known by its name in the pod, so that one that is created anew
// takes the place of the one before; one that has ended is dropped by its ID, which
// leaves the one that took its place. The zero value is ready.
type Ledger struct {
	mu   sync.Mutex
	pods map[string]map[string]usageOf // by sandbox and container name
}

type usageOf struct {
	id string // of the container
	policy.Usage
}

// Note keeps what a container has, as it is found after a restart.
func (l *Ledger) Note(sandboxID, container, containerID string, u policy.Usage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note(sandboxID, container, containerID, u)
}

func (l *Ledger) note(sandboxID, container, containerID string, u policy.Usage) {
	if l.pods == nil {
		l.pods = make(map[string]map[string]usageOf)
	}
	if l.pods[sandboxID] == nil {
		l.pods[sandboxID] = make(map[string]usageOf)
	}
	l.pods[sandboxID][container] = usageOf{containerID, u}
}

// Drop says that a container has ended, or did not come to be.
func (l *Ledger) Drop(sandboxID, containerID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.pods[sandboxID], func(_ string, u usageOf) bool { return u.id == containerID })
	if len(l.pods[sandboxID]) == 0 {
		delete(l.pods, sandboxID)
	}
}

// of is what a container has.
func (l *Ledger) of(sandboxID, container string) policy.Usage {
	if l == nil {
		return policy.Usage{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pods[sandboxID][container].Usage
}

// Forget drops a pod.
func (l *Ledger) Forget(sandboxID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pods, sandboxID)
}

// Retain drops the pods that are gone, and of the others the containers that have ended.
func (l *Ledger) Retain(alive, runs func(id string) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, containers := range l.pods {
		maps.DeleteFunc(containers, func(_ string, u usageOf) bool { return !runs(u.id) })
		if !alive(id) || len(containers) == 0 {
			delete(l.pods, id)
		}
	}
}

// reserve asks whether a container may have so much beside the others of its pod,
// and notes it when it may: two containers at once cannot both have the last of it.
func (l *Ledger) reserve(sandboxID, container, containerID string, u policy.Usage, ask func(others policy.Usage) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := ask(l.sumOthers(sandboxID, container)); err != nil {
		return err
	}
	l.note(sandboxID, container, containerID, u)
	return nil
}

// others is what the other containers of a pod have.
func (l *Ledger) others(sandboxID, container string) policy.Usage {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sumOthers(sandboxID, container)
}

// sumOthers is others. The lock is held.
func (l *Ledger) sumOthers(sandboxID, container string) policy.Usage {
	var others policy.Usage
	for name, have := range l.pods[sandboxID] {
		if name != container {
			others = others.Add(have.Usage)
		}
	}
	return others
}

// limit holds the plan against the rules' limits.
func (p *planner) limit() error {
	if !p.policy.HasLimits() {
		return nil
	}
	u := p.usage()
	if p.running {
		// What it was given besides sockets it keeps.
		was := p.ledger.of(p.req.SandboxID, p.req.Container)
		was.Sockets = u.Sockets
		u = was
	}
	ask := func(others policy.Usage) error {
		refused, audited := p.policy.Limit(p.subject, u, others)
		if audited != nil && len(p.items) > 0 {
			item := &p.items[len(p.items)-1]
			if item.Audit != "" {
				item.Audit += "; "
			}
			item.Audit += audited.Error()
		}
		return refused
	}
	if !p.policy.HasPodLimits(p.subject) {
		return ask(policy.Usage{})
	}
	counted := u
	p.counted = &counted
	if p.ledger == nil {
		return ask(policy.Usage{})
	}
	if p.explains {
		return ask(p.ledger.others(p.req.SandboxID, p.req.Container))
	}
	return p.ledger.reserve(p.req.SandboxID, p.req.Container, p.req.ContainerID, u, ask)
}

// usage counts what the plan gives. The mounts of sockets count as sockets, and
// what Jackfield adds itself does not count.
func (p *planner) usage() policy.Usage {
	set := p.b.Edits()
	u := policy.Usage{CDI: p.devices.len(), Devices: len(set.Devices), Hooks: len(set.Hooks)}
	for i := range set.Mounts {
		if s := set.Mounts[i].Origin.Source; s != edits.Attachment && s != edits.View {
			u.Mounts++
		}
	}
	for i := range p.view {
		if info := p.view[i].att.Info; info != nil && (info.Type == deviceinfo.TypeVhostUser || info.Type == deviceinfo.TypeMemif) {
			u.Sockets++
		}
	}
	return u
}
