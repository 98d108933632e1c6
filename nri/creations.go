// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"sync"

	"github.com/containerd/nri/pkg/api"

	"github.com/jackfield/jackfield/pkg/policy"
	"github.com/jackfield/jackfield/pkg/resolve"
)

// creations are the containers that were given something and have not started. A runtime
// does not always report that a creation failed after NRI's part of it: CRI-O does not
// when the OCI runtime fails. The kubelet starts each container of a pod before it creates
// the next one, so what has not started by then never will.
//
// A container that was created and has no StartContainer is only forgotten when another
// one takes its name. Until then it counts against no limit and is not in the status.
type creations struct {
	mu sync.Mutex
	// reported says that this runtime reports starts. Without a report nothing is known.
	reported bool
	pending  map[string]map[string]*creation // by sandbox and container ID
}

// creation is one container that was given something.
type creation struct {
	pod   *api.PodSandbox
	c     *api.Container
	usage *policy.Usage // nil where no rule limits it
	// adjust is what the runtime was answered.
	adjust *api.ContainerAdjustment
}

// begin notes a container that was given something.
func (cs *creations) begin(pod *api.PodSandbox, c *api.Container, usage *policy.Usage, adjust *api.ContainerAdjustment) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.pending == nil {
		cs.pending = make(map[string]map[string]*creation)
	}
	if cs.pending[pod.GetId()] == nil {
		cs.pending[pod.GetId()] = make(map[string]*creation)
	}
	cs.pending[pod.GetId()][c.GetId()] = &creation{pod, c, usage, adjust}
}

// started notes that a container starts, and counts it again.
func (cs *creations) started(sandboxID, containerID string, ledger *resolve.Ledger) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.reported = true
	one := cs.pending[sandboxID][containerID]
	if one == nil {
		return
	}
	if one.usage != nil {
		ledger.Note(sandboxID, containerName(one.c), containerID, *one.usage)
	}
	cs.drop(sandboxID, containerID)
}

// forget drops a container that ended or was removed.
func (cs *creations) forget(sandboxID, containerID string) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.drop(sandboxID, containerID)
}

// drop removes a container. The lock is held.
func (cs *creations) drop(sandboxID, containerID string) {
	if delete(cs.pending[sandboxID], containerID); len(cs.pending[sandboxID]) == 0 {
		delete(cs.pending, sandboxID)
	}
}

// forgetSandbox drops the containers of a sandbox.
func (cs *creations) forgetSandbox(id string) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	delete(cs.pending, id)
}

// reset begins a connection, whose runtime says what lives.
func (cs *creations) reset() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.reported, cs.pending = false, nil
}

// failed lists the containers of a sandbox that never started, before another one is
// created in it.
func (cs *creations) failed(sandboxID, containerID string) []*creation {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if !cs.reported {
		return nil
	}
	var out []*creation
	for id, one := range cs.pending[sandboxID] {
		if id != containerID {
			out = append(out, one)
		}
	}
	return out
}

// waits reports whether a container has not started, as far as the runtime reports that.
func (cs *creations) waits(sandboxID, containerID string) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.reported && cs.pending[sandboxID][containerID] != nil
}

// adjustment is what the runtime was answered for a container that has not started; nil
// for nothing.
func (cs *creations) adjustment(sandboxID, containerID string) *api.ContainerAdjustment {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if one := cs.pending[sandboxID][containerID]; one != nil {
		return one.adjust
	}
	return nil
}

// forgetFailed forgets earlier attempts to create a container of this name, and counts
// what else never started in the pod against no limit.
func (p *Plugin) forgetFailed(core *core, pod *api.PodSandbox, c *api.Container) {
	for _, one := range p.creations.failed(pod.GetId(), c.GetId()) {
		if containerName(one.c) != containerName(c) {
			p.ledger.Drop(pod.GetId(), one.c.GetId())
			continue
		}
		p.containerLog(one.pod, one.c).WithField("next", c.GetId()).Info("the container never started: removed what it was given")
		remove := p.forgotten(one.pod, one.c)
		if core.store != nil { // on a worker already
			remove(core.store)
		}
	}
}
