// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/jackfield/jackfield/internal/diag"
	"github.com/jackfield/jackfield/internal/status"
	nriapply "github.com/jackfield/jackfield/pkg/apply/nri"
	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/hostfs"
	"github.com/jackfield/jackfield/pkg/resolve"
	"github.com/jackfield/jackfield/pkg/staging"
)

// A container that is created while the plugin is not connected comes up without its
// devices, and the runtime reports that to nobody. After Synchronize, this file compares the
// containers that live with what they would be given now. It reads the runtime's own description
// of each container first: records in the state directory may be lost, and the runtime reports
// what a container has.

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

// missedContainers knows the running containers that lack what they requested.
type missedContainers struct {
	p *Plugin
	background

	mu       sync.Mutex
	suspects map[string]*suspect // by container ID
	evicted  map[string]bool     // containers, while the plugin runs
}

// suspect is a container as the runtime described it, of which nothing else is known or which is
// missed.
type suspect struct {
	pod    *api.PodSandbox
	c      *api.Container
	missed *status.Container // what it lacks; nil while that is not known
}

func newMissedContainers(p *Plugin) *missedContainers {
	m := &missedContainers{p: p, background: newBackground(), suspects: make(map[string]*suspect), evicted: make(map[string]bool)}
	go m.checkUntilClosed()
	return m
}

// synchronize takes the containers that live, to be checked once the records of what
// containers were given are read.
func (m *missedContainers) synchronize(pods map[string]*api.PodSandbox, containers []*api.Container) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.suspects
	m.suspects = make(map[string]*suspect)
	for _, c := range containers {
		if pod := pods[c.GetPodSandboxId()]; pod != nil && c.GetState() != api.ContainerState_CONTAINER_STOPPED {
			s := &suspect{pod: pod, c: c}
			if old := before[c.GetId()]; old != nil {
				s.missed = old.missed
			}
			m.suspects[c.GetId()] = s
		}
	}
	maps.DeleteFunc(m.evicted, func(id string, _ bool) bool { return m.suspects[id] == nil })
}

// forgetContainer drops a container that has ended.
func (m *missedContainers) forgetContainer(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.suspects, id)
	delete(m.evicted, id)
}

// forgetSandbox drops the containers of a pod that is gone.
func (m *missedContainers) forgetSandbox(sandboxID string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, s := range m.suspects {
		if s.pod.GetId() == sandboxID {
			delete(m.suspects, id)
			delete(m.evicted, id)
		}
	}
}

// listMissed returns the missed containers.
func (m *missedContainers) listMissed() []status.Container {
	m.mu.Lock()
	var out []status.Container
	for _, s := range m.suspects {
		if s.missed != nil {
			out = append(out, *s.missed)
		}
	}
	m.mu.Unlock()
	status.Sort(out)
	return out
}

func (m *missedContainers) checkUntilClosed() {
	defer close(m.done)
	tick := time.NewTicker(missedCheckInterval)
	defer tick.Stop()
	for {
		select {
		case <-m.p.closing.Done():
			return
		case <-m.wakeup:
		case <-tick.C: // also for records that cannot be read
			m.p.sweepFailedCreations()
		}
		m.checkAll()
	}
}

// listSuspects returns the suspects, in order.
func (m *missedContainers) listSuspects() []*suspect {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*suspect
	for _, id := range slices.Sorted(maps.Keys(m.suspects)) {
		out = append(out, m.suspects[id])
	}
	return out
}

// checkAll checks every suspect, reports those that are missed, and then evicts them
// where the configuration says so.
func (m *missedContainers) checkAll() {
	var evictable []*suspect
	lines, more := 0, 0
	for _, s := range m.listSuspects() {
		if m.p.closing.Err() != nil {
			return
		}
		result := m.checkSuspect(s)
		switch {
		case result.unknown:
			continue
		case !result.missed:
			m.forgetContainer(s.c.GetId())
			continue
		}
		if m.recordMissed(s, result) {
			if lines++; lines <= maxMissedLines {
				m.p.containerLog(s.pod, s.c).WithField("requests", missedRequests(result.record.Requests)).
					Warn("the container was created while jackfield-nri was not connected, and runs without what it requested")
			} else {
				more++
			}
		}
		if result.deliverable {
			evictable = append(evictable, s)
		}
	}
	if more > 0 {
		m.p.log.WithField("containers", more).Warn("more containers run without what they requested: `jackfield status` lists them")
	}
	if m.p.config.core.Load().cfg.Missed == config.MissedEvict {
		m.evictAll(evictable)
	}
}

// recordMissed keeps the record of a missed container, and is true for one that is new.
func (m *missedContainers) recordMissed(s *suspect, result missedCheck) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.suspects[s.c.GetId()] != s {
		return false // it ended meanwhile, or is checked again
	}
	known := s.missed != nil
	if known {
		result.record.Since = s.missed.Since
	}
	s.missed = &result.record
	return !known
}

// missedCheck is what the check of one container found.
type missedCheck struct {
	unknown     bool // it could not be checked now
	missed      bool // it lacks something that it requested
	deliverable bool // it would get everything now
	record      status.Container
}

func (m *missedContainers) checkSuspect(s *suspect) (result missedCheck) {
	p := m.p
	defer p.recoverPanic(new(error), p.containerLog(s.pod, s.c))
	current := p.config.core.Load()
	req := p.request(s.pod, s.c)
	if p.containers.records.hasContainer(req.ContainerID) || p.wasGiven(current, req) {
		return missedCheck{}
	}
	if current.engine.HasNoRequests(req.SandboxID, req.Annotations, req.Have.Env, hasDeviceMetadata(s.c)) {
		return missedCheck{}
	}
	ctx, cancel := context.WithTimeout(m.p.closing, missedCheckTimeout)
	defer cancel()
	plan, err := current.engine.Explain(ctx, req)
	if ctx.Err() != nil || errdefs.IsUnavailable(err) {
		return missedCheck{unknown: true}
	}
	items := missedItems(plan.Items)
	var whole *resolve.Error
	if len(items) == 0 && (err == nil || len(plan.Items) > 0 || !errors.As(err, &whole)) {
		return missedCheck{}
	}
	result = missedCheck{missed: true, record: p.containerRecord(s.pod, s.c, items, nil)}
	if created := s.c.GetCreatedAt(); created > 0 {
		result.record.Since = time.Unix(0, created).UTC()
	}
	if len(items) == 0 {
		// The requests cannot be parsed.
		result.record.Requests = []status.Request{{Request: "the requests of the pod", Outcome: string(resolve.Failed), Reason: diag.ErrorText(err)}}
	}
	if err == nil {
		_, err = nriapply.Adjustment(&plan.Set, p.capabilitiesFor(req.UserNS != nil), req.Have.Devices...)
		result.deliverable = err == nil
	}
	return result
}

// wasGiven reports whether the runtime's description of a container shows that Jackfield
// gave it something, or the OCI hook has a record of it.
func (p *Plugin) wasGiven(current *core, req *resolve.Request) bool {
	if req.ContainerAnnotations[usageAnnotation] != "" {
		return true
	}
	// The directory is the container's own: one of the same name from elsewhere says nothing.
	own := p.opts.Host.Path(staging.ContainerDir(current.cfg.StateDir, req.ContainerID))
	for i := range req.Have.Mounts {
		if req.Have.Mounts[i].Source == own {
			return true
		}
	}
	ids, _ := staging.RecordedContainers(p.opts.Host, staging.HookDir(current.cfg.StateDir), req.SandboxID) // none where it cannot be read
	return slices.Contains(ids, req.ContainerID)
}

// missedItems are the requests that a container should have and has not. One that is
// optional may be missing, and the hooks of hooks.d directories have no trace in a
// container that runs.
func missedItems(items []resolve.Item) []resolve.Item {
	return slices.DeleteFunc(slices.Clone(items), func(it resolve.Item) bool {
		lacks := it.Outcome == resolve.Injected || it.FailsContainer()
		return !lacks || it.Optional || it.Kind == resolve.KindHook
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

// NRI has messages for evictions, and no version of it (0.12.5 is the newest) passes
// those of a plugin on to the runtime. So a container is stopped over CRI.

// evictionTimeout bounds the stop of one container.
const evictionTimeout = 30 * time.Second

// defaultRuntimeSockets are the CRI sockets of runtimes, by the name that they give
// themselves in NRI.
var defaultRuntimeSockets = map[string]string{
	"containerd": "/run/containerd/containerd.sock",
	"cri-o":      "/run/crio/crio.sock",
}

// evictAll stops containers, one after the other. Each is checked again right before: a
// container that ended, or that would be refused now, is not stopped.
func (m *missedContainers) evictAll(suspects []*suspect) {
	for _, s := range suspects {
		if !m.mayEvict(s.c.GetId()) || !m.checkSuspect(s).deliverable {
			continue
		}
		log := m.p.containerLog(s.pod, s.c)
		if err := m.evictContainer(s.c.GetId()); err != nil {
			log.WithError(err).Error("the container, which runs without what it requested, could not be evicted; trying again in a minute")
			return // the next one would fail for the same reason
		}
		m.recordEviction(s.c.GetId())
		log.Warn("evicted the container, which ran without what it requested: the kubelet creates it again as the pod's restartPolicy says")
		sleep(m.p.closing, evictionInterval)
	}
}

// mayEvict reports whether a container lives, and was not stopped before.
func (m *missedContainers) mayEvict(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.suspects[id]
	return s != nil && s.missed != nil && !m.evicted[id] && m.p.closing.Err() == nil
}

// recordEviction drops a container that was stopped: containerd does not report the end of a
// container that is older than its own process.
func (m *missedContainers) recordEviction(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.suspects, id)
	m.evicted[id] = true
}

func (m *missedContainers) evictContainer(id string) error {
	socket := cmp.Or(m.p.config.core.Load().cfg.Runtime.Socket, defaultRuntimeSockets[m.p.runtimeName()])
	if socket == "" {
		return fmt.Errorf("the CRI socket of runtime %q is unknown: set runtime.socket: %w", m.p.runtimeName(), errdefs.ErrNotFound)
	}
	ctx, cancel := context.WithTimeout(m.p.closing, evictionTimeout)
	defer cancel()
	if err := stopContainer(ctx, m.p.opts.Host, socket, id); err != nil {
		return fmt.Errorf("stop container over the CRI socket %s (runtime.socket): %w", socket, err)
	}
	return nil
}

// stopContainer has the runtime kill a container. SIGKILL is what the runtimes' own NRI
// evictions send: a job that ends in good order on SIGTERM would count as done.
func stopContainer(ctx context.Context, host hostfs.Root, socket, id string) error {
	cc, err := grpc.NewClient("passthrough:///container-runtime",
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", host.Path(socket))
		}),
		grpc.WithNoProxy(), grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(), grpc.WithDisableHealthCheck())
	if err != nil {
		return err
	}
	defer cc.Close()
	// A StopContainerRequest with an ID and no timeout reads as a StringValue: its field 1
	// is the text. The response has no field.
	return cc.Invoke(ctx, "/runtime.v1.RuntimeService/StopContainer", wrapperspb.String(id), &emptypb.Empty{})
}
