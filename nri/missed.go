// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"

	nriapply "github.com/jackfield/jackfield/pkg/apply/nri"
	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/resolve"
	"github.com/jackfield/jackfield/pkg/staging"
	"github.com/jackfield/jackfield/pkg/status"
)

// A container that is created while the plugin is not connected comes up without its
// devices, and the runtime reports that to nobody. After Synchronize, this file compares
// the containers that live with what they would be given now. It asks the runtime's own
// description of each container first: records in the state directory may be lost, and the
// runtime tells what a container has.

const (
	// missedCheckInterval is how often missed containers are checked again: what kept them
	// from being evicted may be gone.
	missedCheckInterval = time.Minute
	// missedCheckTimeout bounds the check of one container, which may ask the kubelet.
	missedCheckTimeout = 10 * time.Second
	// maxMissedLines bounds the log lines of one check.
	maxMissedLines = 50
	// evictionInterval is the time between two evictions.
	evictionInterval = time.Second
)

// missedContainers knows the running containers that lack what they asked for.
type missedContainers struct {
	p    *Plugin
	kick chan struct{}
	quit context.Context
	end  context.CancelFunc
	done chan struct{}

	mu       sync.Mutex
	suspects map[string]suspect          // by container ID; of these nothing is known, or they are missed
	found    map[string]status.Container // the suspects that are missed
	evicted  map[string]bool             // while the plugin runs
}

// suspect is a container as the runtime described it.
type suspect struct {
	pod *api.PodSandbox
	c   *api.Container
}

func newMissedContainers(p *Plugin) *missedContainers {
	m := &missedContainers{p: p, kick: make(chan struct{}, 1), done: make(chan struct{}),
		suspects: make(map[string]suspect), found: make(map[string]status.Container), evicted: make(map[string]bool)}
	m.quit, m.end = context.WithCancel(context.Background())
	go m.run()
	return m
}

func (m *missedContainers) close() {
	m.end()
	select {
	case <-m.done:
	case <-time.After(closeTime):
		// It hangs on a file system, and ends with the process.
	}
}

// synchronize takes the containers that live, to be checked once the records of what
// containers were given are read.
func (m *missedContainers) synchronize(pods []*api.PodSandbox, containers []*api.Container) {
	byID := make(map[string]*api.PodSandbox, len(pods))
	for _, pod := range pods {
		byID[pod.GetId()] = pod
	}
	m.mu.Lock()
	clear(m.suspects)
	for _, c := range containers {
		if pod := byID[c.GetPodSandboxId()]; pod != nil && c.GetState() != api.ContainerState_CONTAINER_STOPPED {
			m.suspects[c.GetId()] = suspect{pod, c}
		}
	}
	maps.DeleteFunc(m.found, func(id string, _ status.Container) bool { _, lives := m.suspects[id]; return !lives })
	maps.DeleteFunc(m.evicted, func(id string, _ bool) bool { _, lives := m.suspects[id]; return !lives })
	m.mu.Unlock()
	m.p.tracker.do(func(*status.Records) {
		select {
		case m.kick <- struct{}{}:
		default:
		}
	})
}

// forget drops a container that has ended.
func (m *missedContainers) forget(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.suspects, id)
	delete(m.found, id)
	delete(m.evicted, id)
}

// forgetSandbox drops the containers of a pod that is gone.
func (m *missedContainers) forgetSandbox(sandboxID string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, s := range m.suspects {
		if s.pod.GetId() == sandboxID {
			delete(m.suspects, id)
			delete(m.found, id)
			delete(m.evicted, id)
		}
	}
}

func (m *missedContainers) count() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return uint64(len(m.found))
}

func (m *missedContainers) list() []status.Container {
	m.mu.Lock()
	out := slices.Collect(maps.Values(m.found))
	m.mu.Unlock()
	status.Sort(out)
	return out
}

func (m *missedContainers) run() {
	defer close(m.done)
	tick := time.NewTicker(missedCheckInterval)
	defer tick.Stop()
	for {
		select {
		case <-m.quit.Done():
			return
		case <-m.kick:
		case <-tick.C: // also for records that cannot be read
			m.p.sweepFailedCreations()
		}
		m.checkAll()
	}
}

// snapshot is the suspects, in order.
func (m *missedContainers) snapshot() []suspect {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []suspect
	for _, id := range slices.Sorted(maps.Keys(m.suspects)) {
		out = append(out, m.suspects[id])
	}
	return out
}

// checkAll checks every suspect, reports those that are missed, and then evicts them
// where the configuration says so.
func (m *missedContainers) checkAll() {
	var evictable []suspect
	lines, more := 0, 0
	for _, s := range m.snapshot() {
		if m.quit.Err() != nil {
			return
		}
		result := m.check(s)
		switch {
		case result.unknown:
			continue
		case !result.missed:
			m.forget(s.c.GetId())
			continue
		}
		if m.report(s, result) {
			if lines++; lines <= maxMissedLines {
				m.p.containerLog(s.pod, s.c).WithField("requests", missedRequests(result.record.Requests)).
					Warn("the container was created while jackfield-nri was not connected, and runs without what it asked for")
			} else {
				more++
			}
		}
		if result.deliverable {
			evictable = append(evictable, s)
		}
	}
	if more > 0 {
		m.p.log.WithField("containers", more).Warn("more containers run without what they asked for: `jackfield status` lists them")
	}
	if m.p.core.Load().cfg.Missed == config.MissedEvict {
		m.evictAll(evictable)
	}
}

// report keeps the record of a missed container, and is true for one that is new.
func (m *missedContainers) report(s suspect, result missedCheck) bool {
	id := s.c.GetId()
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, lives := m.suspects[id]; !lives {
		return false // it ended meanwhile
	}
	old, known := m.found[id]
	if known {
		result.record.Since = old.Since
	}
	m.found[id] = result.record
	return !known
}

// missedCheck is what the check of one container found.
type missedCheck struct {
	unknown     bool // it could not be checked now
	missed      bool // it lacks something that it asked for
	deliverable bool // it would get everything now
	record      status.Container
}

func (m *missedContainers) check(s suspect) (result missedCheck) {
	p := m.p
	defer func() {
		if r := recover(); r != nil {
			_ = p.caught(p.containerLog(s.pod, s.c), r) // nobody waits
			result = missedCheck{}
		}
	}()
	core := p.core.Load()
	req := request(p.runtimeName(), s.pod, s.c)
	if p.tracker.knows(req.ContainerID) || p.wasGiven(core, req) {
		return missedCheck{}
	}
	if core.engine.Nothing(req.SandboxID, req.Annotations, req.Have.Env) {
		return missedCheck{}
	}
	ctx, cancel := context.WithTimeout(m.quit, missedCheckTimeout)
	defer cancel()
	can := *p.can.Load()
	can.UserNS = req.UserNS != nil
	plan, err := core.engine.Explain(ctx, req)
	if ctx.Err() != nil || errdefs.IsUnavailable(err) {
		return missedCheck{unknown: true}
	}
	items := missedItems(plan.Items)
	var whole *resolve.Error
	if len(items) == 0 && (err == nil || len(plan.Items) > 0 || !errors.As(err, &whole)) {
		return missedCheck{}
	}
	result = missedCheck{missed: true, record: p.told(s.pod, s.c, items, nil)}
	if created := s.c.GetCreatedAt(); created > 0 {
		result.record.Since = time.Unix(0, created).UTC()
	}
	if len(items) == 0 {
		// They cannot be read.
		result.record.Requests = []status.Request{{Request: "the requests of the pod", Outcome: string(resolve.Failed), Reason: err.Error()}}
	}
	if err == nil {
		_, err = nriapply.Adjustment(&plan.Set, can, req.Have.Devices...)
		result.deliverable = err == nil
	}
	return result
}

// wasGiven reports whether the runtime's description of a container shows that Jackfield
// gave it something, or the OCI hook has a record of it.
func (p *Plugin) wasGiven(core *core, req *resolve.Request) bool {
	if req.ContainerAnnotations[usageAnnotation] != "" {
		return true
	}
	// The directory is the container's own: one of the same name from elsewhere says nothing.
	own := p.opts.Host.Path(staging.ContainerDir(core.cfg.StateDir, req.ContainerID))
	for i := range req.Have.Mounts {
		if req.Have.Mounts[i].Source == own {
			return true
		}
	}
	ids, _ := staging.Recorded(p.opts.Host, staging.HookDir(core.cfg.StateDir), req.SandboxID) // none where it cannot be read
	return slices.Contains(ids, req.ContainerID)
}

// missedItems are the requests that a container should have and has not. One that is
// optional may be missing, and the hooks of hooks.d directories have no trace in a
// container that runs.
func missedItems(items []resolve.Item) []resolve.Item {
	return slices.DeleteFunc(slices.Clone(items), func(it resolve.Item) bool {
		lacks := it.Outcome == resolve.Injected || it.Outcome == resolve.Refused || it.Outcome == resolve.Failed
		return !lacks || it.Optional || strings.HasPrefix(it.Request, "hook ")
	})
}

// missedRequests names requests for the log, and why those that are not deliverable are
// not.
func missedRequests(requests []status.Request) []string {
	var out []string
	for _, r := range requests {
		text := r.Request
		if r.Reason != "" {
			text += ": " + r.Outcome + ": " + r.Reason
		}
		out = append(out, text)
	}
	return out
}
