// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"

	"github.com/jackfield/jackfield/internal/diag"
	"github.com/jackfield/jackfield/pkg/policy"
	"github.com/jackfield/jackfield/pkg/resolve"
	"github.com/jackfield/jackfield/pkg/staging"
)

// creations are the containers that were given something and have not started. A runtime
// does not always report that a creation failed after NRI's part of it: CRI-O does not
// when the OCI runtime fails. The kubelet starts each container of a pod before it creates
// the next one, so what has not started by then never will.
//
// A container that was created and has no StartContainer is forgotten when another one
// takes its name, or when it is certain that it does not exist: see sweepFailedCreations.
// Until then it counts against no limit and is not in the status.
type creations struct {
	mu sync.Mutex
	// reported says that this runtime reports starts. Without a report nothing is known.
	reported bool
	pending  map[string]*creation // by container ID
}

// creation is one container that was given something.
type creation struct {
	pod    *api.PodSandbox
	c      *api.Container
	req    *resolve.Request
	plan   *resolve.Plan
	adjust *api.ContainerAdjustment // what the runtime was answered
	store  *staging.Store           // that has the container's sockets
	begun  time.Time
	// checked is when the last check began whether the container exists; at first it is begun.
	checked time.Time
}

// addCreation notes a container that was given something.
func (cs *creations) addCreation(made *creation) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.pending == nil {
		cs.pending = make(map[string]*creation)
	}
	made.begun = time.Now()
	made.checked = made.begun
	cs.pending[made.c.GetId()] = made
}

// recordStart notes that a container starts, and counts it again.
func (cs *creations) recordStart(containerID string, ledger *resolve.Ledger) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.reported = true
	if one := cs.pending[containerID]; one != nil && one.plan.Usage != nil {
		ledger.Note(one.pod.GetId(), containerName(one.c), containerID, *one.plan.Usage)
	}
	delete(cs.pending, containerID)
}

// forgetContainer drops a container that ended or was removed.
func (cs *creations) forgetContainer(containerID string) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	delete(cs.pending, containerID)
}

// forgetSandbox drops the containers of a sandbox.
func (cs *creations) forgetSandbox(id string) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	maps.DeleteFunc(cs.pending, func(_ string, one *creation) bool { return one.pod.GetId() == id })
}

// forgetAll begins a connection, whose runtime says what lives.
func (cs *creations) forgetAll() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.reported, cs.pending = false, nil
}

// listFailed lists the containers of a sandbox that never started, before another one is
// created in it.
func (cs *creations) listFailed(sandboxID, containerID string) []*creation {
	return cs.listMatching(func(one *creation) bool { return one.pod.GetId() == sandboxID && one.c.GetId() != containerID })
}

// listMatching lists the containers that have not started and match, as far as the runtime reports that.
func (cs *creations) listMatching(match func(*creation) bool) []*creation {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	var out []*creation
	for _, one := range cs.pending {
		if cs.reported && match(one) {
			out = append(out, one)
		}
	}
	return out
}

// isPending reports whether a container has not started, as far as the runtime reports that.
func (cs *creations) isPending(containerID string) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.reported && cs.pending[containerID] != nil
}

// adjustmentOf is what the runtime was answered for a container that has not started; nil
// for nothing.
func (cs *creations) adjustmentOf(containerID string) *api.ContainerAdjustment {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if one := cs.pending[containerID]; one != nil {
		return one.adjust
	}
	return nil
}

// forgetFailedCreations forgets earlier attempts to create a container of this name, and counts
// what else never started in the pod against no limit.
func (p *Plugin) forgetFailedCreations(current *core, pod *api.PodSandbox, c *api.Container) {
	for _, one := range p.containers.creations.listFailed(pod.GetId(), c.GetId()) {
		if containerName(one.c) != containerName(c) {
			p.containers.ledger.Drop(pod.GetId(), one.c.GetId())
			continue
		}
		p.containerLog(one.pod, one.c).WithField("next", c.GetId()).Info("the container never started: removed its state")
		remove := p.forgetContainer(one.pod, one.c)
		if current.store != nil { // this is a worker
			remove(current.store)
		}
	}
}

// listOverdue returns the containers that have not started for age, and leaves them out for as
// long again.
func (cs *creations) listOverdue(age time.Duration) []*creation {
	return cs.listMatching(func(one *creation) bool {
		if time.Since(one.checked) < age {
			return false
		}
		one.checked = time.Now()
		return true
	})
}

// sweepFailedCreations removes what was created for containers that did not start for
// [staging.MinOrphanAge] and certainly do not exist: no process has mounted the staging directory
// that the runtime's mount names.
//
// That is proof under CRI-O alone, which has the OCI runtime create the container, with its
// mounts, before it answers CreateContainer. containerd creates it when it is started; until
// then a container that exists has no mounts. containerd reports failed creations itself.
func (p *Plugin) sweepFailedCreations() {
	current := p.config.core.Load()
	if current == nil || current.store == nil || p.runtimeName() != crio || !p.runtime.seesRuntime() {
		return
	}
	begun := make(map[string]time.Time)
	overdue := slices.DeleteFunc(p.containers.creations.listOverdue(staging.MinOrphanAge), func(one *creation) bool {
		dir := p.opts.Host.Path(staging.ContainerDir(current.cfg.StateDir, one.c.GetId()))
		return !slices.ContainsFunc(one.adjust.GetMounts(), func(m *api.Mount) bool { return m.GetSource() == dir })
	})
	if len(overdue) == 0 {
		return
	}
	for _, one := range overdue {
		begun[one.c.GetId()] = one.begun
	}
	unmounted, err := current.store.UnmountedContainers(begun, sweepTimeout)
	if err != nil {
		p.log.WithError(err).Warn("cannot check which containers that never started exist: their state stays until their pods are removed")
		return
	}
	for _, one := range overdue {
		if slices.Contains(unmounted, one.c.GetId()) && p.containers.creations.isPending(one.c.GetId()) {
			p.containerLog(one.pod, one.c).Info("the container never started and does not exist: removed its state")
			p.forgetContainer(one.pod, one.c)(current.store)
		}
	}
}

// usageAnnotation is the container annotation with what a container was given, where a rule
// limits what its pod gets. The runtime keeps it, so that it survives a restart of the plugin. A
// pod's author writes the pod's annotations, not the container's.
const usageAnnotation = "usage.jackfield.dev"

const usageFormat = "cdi=%d,devices=%d,sockets=%d,mounts=%d,hooks=%d"

// maxUsage is far more than any container is given, and small enough to be summed up.
const maxUsage = 1 << 20

// markUsage adds the annotation to an adjustment.
func markUsage(adjust *api.ContainerAdjustment, u *policy.Usage) *api.ContainerAdjustment {
	if u == nil || *u == (policy.Usage{}) {
		return adjust
	}
	if adjust == nil {
		adjust = &api.ContainerAdjustment{}
	}
	adjust.AddAnnotation(usageAnnotation, formatUsage(u))
	return adjust
}

func formatUsage(u *policy.Usage) string {
	return fmt.Sprintf(usageFormat, u.CDI, u.Devices, u.Sockets, u.Mounts, u.Hooks)
}

// parseUsage parses what formatUsage returns, and nothing else: a negative count would lift the
// limit of the container's pod.
func parseUsage(text string) (policy.Usage, error) {
	var u policy.Usage
	_, err := fmt.Sscanf(text, usageFormat, &u.CDI, &u.Devices, &u.Sockets, &u.Mounts, &u.Hooks)
	if err != nil || formatUsage(&u) != text || min(u.CDI, u.Devices, u.Sockets, u.Mounts, u.Hooks) < 0 || max(u.CDI, u.Devices, u.Sockets, u.Mounts, u.Hooks) > maxUsage {
		return policy.Usage{}, fmt.Errorf("found %s, want %s with counts from 0 to %d: %w", diag.Quote(text, 100), strings.ReplaceAll(usageFormat, "%d", "N"), maxUsage, errdefs.ErrInvalidArgument)
	}
	return u, nil
}

// restoreUsage reads from the annotations what living containers were given.
func (p *Plugin) restoreUsage(sandboxes map[string]*api.PodSandbox, alive map[string]bool, containers []*api.Container) {
	p.containers.ledger.Retain(func(id string) bool { return sandboxes[id] != nil }, func(id string) bool { return alive[id] })
	for _, c := range containers {
		text, ok := c.GetAnnotations()[usageAnnotation]
		if !ok || c.GetState() == api.ContainerState_CONTAINER_STOPPED {
			continue // a container that has ended has nothing
		}
		u, err := parseUsage(text)
		if err != nil {
			p.log.WithError(err).WithField("containerID", c.GetId()).Warnf("ignored the container's annotation %s: the container does not count for its pod's limits", usageAnnotation)
			continue
		}
		p.containers.ledger.Note(c.GetPodSandboxId(), containerName(c), c.GetId(), u)
	}
}
