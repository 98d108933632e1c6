// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/jackfield/jackfield/internal/base/deadline"
	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/config"
	nriapply "github.com/jackfield/jackfield/internal/deliver/nri"
	"github.com/jackfield/jackfield/internal/deliver/staging"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/engine"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/report/status"
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

// checkMissed checks every suspect, reports those that are missed, and then evicts them
// where the configuration says so.
func (p *Plugin) checkMissed() {
	table := p.containers.containerTable
	var evictable []*container
	lines := 0
	for _, c := range table.list(func(c *container) bool { return c.suspect }) {
		if p.closing.Err() != nil {
			return
		}
		result := p.checkContainer(c)
		switch {
		case result.unknown:
			continue
		case result.record == nil:
			table.clearSuspicion(c, false)
			continue
		}
		if table.recordMissed(c, result.record) {
			if lines++; lines <= maxMissedLines {
				p.containerLog(c.pod, c.c).WithField("requests", missedRequests(result.record.Requests)).
					Warn("the container was created while jackfield-nri was not connected, and runs without what it requested")
			}
		}
		if result.deliverable {
			evictable = append(evictable, c)
		}
	}
	if more := lines - maxMissedLines; more > 0 {
		p.log.WithField("containers", more).Warn("more containers run without what they requested: `jackfield status` lists them")
	}
	if current := p.config.core.Load(); current != nil && current.cfg.Missed == config.MissedEvict {
		p.evictAll(evictable)
	}
}

// recordMissed keeps what a container lacks, and is true where that is new.
func (t *containerTable) recordMissed(c *container, record *status.Container) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.containers[c.c.GetId()] != c {
		return false // it ended meanwhile, or is checked again
	}
	known := c.missed != nil
	if known {
		record.Since = c.missed.Since
	}
	c.missed = record
	return !known
}

// clearSuspicion notes that a container lacks nothing, or was stopped: containerd does not report the
// end of a container that is older than its own process.
func (t *containerTable) clearSuspicion(c *container, evicted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.suspect, c.missed, c.evicted = false, nil, c.evicted || evicted
}

// missedCheck is what the check of one container found.
type missedCheck struct {
	unknown     bool              // it could not be checked now
	record      *status.Container // what it lacks; nil for nothing
	deliverable bool              // it would get everything now
}

func (p *Plugin) checkContainer(c *container) missedCheck {
	defer p.recoverPanic(new(error), c.pod)
	current := p.config.core.Load()
	req := newRequest(p.runtimeName(), c.pod, c.c)
	if p.containers.recordOf(req.ContainerID) != nil || p.wasGiven(current, req) || current.engine.HasNoRequests(req) {
		return missedCheck{}
	}
	ctx, cancel := context.WithTimeout(p.closing, missedCheckTimeout)
	defer cancel()
	plan, err := current.engine.Explain(ctx, req)
	if ctx.Err() != nil || errdefs.IsUnavailable(err) {
		return missedCheck{unknown: true}
	}
	items := missedItems(plan.Items)
	var whole *engine.Error
	if len(items) == 0 && (err == nil || len(plan.Items) > 0 || !errors.As(err, &whole)) {
		return missedCheck{}
	}
	record := p.containerRecord(c.pod, c.c, items, nil)
	if created := c.c.GetCreatedAt(); created > 0 {
		record.Since = time.Unix(0, created).UTC()
	}
	if len(items) == 0 {
		// The requests cannot be parsed.
		record.Requests = []status.Request{{Request: "the requests of the pod", Outcome: string(engine.Failed), Reason: diag.ErrorText(err)}}
	}
	if err == nil {
		_, err = nriapply.Adjustment(&plan.Set, p.capabilitiesFor(req), req.Have.Devices...)
	}
	return missedCheck{record: &record, deliverable: err == nil}
}

// wasGiven reports whether the runtime's description of a container shows that Jackfield
// gave it something, or the OCI hook has a record of it.
func (p *Plugin) wasGiven(current *core, req *engine.Request) bool {
	if req.ContainerAnnotations[usageAnnotation] != "" {
		return true
	}
	// The directory is the container's own: one of the same name from elsewhere says nothing.
	own := p.opts.Host.Path(edit.ContainerDir(current.cfg.StateDir, req.ContainerID))
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
func missedItems(items []engine.Item) []engine.Item {
	return slices.DeleteFunc(slices.Clone(items), func(it engine.Item) bool {
		lacks := it.Outcome == engine.Injected || it.FailsContainer()
		return !lacks || it.Optional || it.Kind == engine.KindHook
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
func (p *Plugin) evictAll(containers []*container) {
	table := p.containers.containerTable
	for _, c := range containers {
		if p.closing.Err() != nil || !table.mayEvict(c) || !p.checkContainer(c).deliverable {
			continue
		}
		log := p.containerLog(c.pod, c.c)
		if err := p.evictContainer(c.c.GetId()); err != nil {
			log.WithError(err).Error("the container, which runs without what it requested, could not be evicted; trying again in a minute")
			if errdefs.IsNotFound(err) || grpcstatus.Code(err) == codes.Unavailable {
				return // without the runtime the next one would fail, too
			}
			continue
		}
		table.clearSuspicion(c, true)
		log.Warn("evicted the container, which ran without what it requested: the kubelet creates it again as the pod's restartPolicy says")
		deadline.Sleep(p.closing, evictionInterval)
	}
}

// mayEvict reports whether a missed container lives, and was not stopped before.
func (t *containerTable) mayEvict(c *container) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.containers[c.c.GetId()] == c && c.missed != nil && !c.evicted
}

func (p *Plugin) evictContainer(id string) error {
	socket := cmp.Or(p.config.core.Load().cfg.Runtime.Socket, defaultRuntimeSockets[p.runtimeName()])
	if socket == "" {
		return fmt.Errorf("the CRI socket of runtime %q is unknown: set runtime.socket: %w", p.runtimeName(), errdefs.ErrNotFound)
	}
	ctx, cancel := context.WithTimeout(p.closing, evictionTimeout)
	defer cancel()
	if err := stopContainer(ctx, p.opts.Host, socket, id); err != nil {
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
