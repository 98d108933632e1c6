// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"maps"
	"sync"

	"github.com/jackfield/jackfield/internal/config/policy"
)

// Ledger stores the usage of containers, where a rule limits the usage of their
// pod. It outlives an Engine, which is replaced with each configuration. A
// container is stored by its name in the pod, so that a re-created container replaces the previous one.
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

// RecordUsage records the usage of a container that the adapter finds after a restart.
func (l *Ledger) RecordUsage(sandboxID, container, containerID string, u policy.Usage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.recordLocked(ledgerKey{sandboxID, container}, containerID, u)
}

func (l *Ledger) recordLocked(key ledgerKey, containerID string, u policy.Usage) {
	if l.containers == nil {
		l.containers = make(map[ledgerKey]containerUsage)
	}
	l.containers[key] = containerUsage{containerID, u}
}

// Drop removes a container that has ended or was not created.
func (l *Ledger) Drop(sandboxID, containerID string) {
	l.remove(func(key ledgerKey, u containerUsage) bool { return key.sandboxID == sandboxID && u.id == containerID })
}

// usageOf returns the recorded usage of a container.
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
	l.remove(func(key ledgerKey, _ containerUsage) bool { return key.sandboxID == sandboxID })
}

// Retain removes the pods that are gone, and the containers that have ended.
func (l *Ledger) Retain(alive, runs func(id string) bool) {
	l.remove(func(key ledgerKey, u containerUsage) bool { return !alive(key.sandboxID) || !runs(u.id) })
}

func (l *Ledger) remove(matches func(ledgerKey, containerUsage) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.containers, matches)
}

// reserve checks the usage of a container together with the other containers of its pod. Unless the plan
// is only shown, it records the usage in the same step: two containers cannot both get the last device. If a running
// container has a replacement, the record of the replacement stays: the container is about to end.
func (l *Ledger) reserve(in *inputs, u policy.Usage, check func(others policy.Usage) error) error {
	req := in.req
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
	if replaced := in.running && known && have.id != req.ContainerID; err == nil && !in.explain && !replaced {
		l.recordLocked(own, req.ContainerID, u)
	}
	return err
}
