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

const (
	// missedCheckInterval is how often missed containers are checked again, because the reason that prevented
	// their eviction may be gone.
	missedCheckInterval = time.Minute
	// missedCheckTimeout bounds the check of one container, which can query the kubelet.
	missedCheckTimeout = 10 * time.Second
	// maxMissedLines bounds the log lines of one check.
	maxMissedLines = 50
	// evictionInterval is the time between two evictions.
	evictionInterval = time.Second
	// evictionTimeout bounds the stop of one container.
	evictionTimeout = 30 * time.Second
)

// missedContainers finds containers that were created while the plugin was not connected. They run without
// their devices, and the runtime does not report that. After Synchronize, it compares the living containers
// with the injection that they would receive now. It reads the runtime's description of each container first,
// because records in the state directory may be lost.
type missedContainers struct {
	*daemon
	current    func() *core
	runtime    *runtimeLink
	containers *containerTable
	outcomes   *outcomes
	wake       wakeup
}

// newMissedContainers returns the search for containers that lack their requests. It runs when it is woken, and
// every missedCheckInterval.
func newMissedContainers(d *daemon, current func() *core, runtime *runtimeLink, containers *containerTable,
	outcomes *outcomes) *missedContainers {
	m := &missedContainers{daemon: d, current: current, runtime: runtime, containers: containers,
		outcomes: outcomes, wake: newWakeup()}
	d.runOn(m.wake, missedCheckInterval, m.checkAll)
	return m
}

// checkAll checks every suspect, reports the missed containers, and then evicts them if the configuration
// requires that.
func (m *missedContainers) checkAll() {
	var evictable []*container
	lines := 0
	for _, c := range m.containers.list(func(c *container) bool { return c.suspect }) {
		if m.closing.Err() != nil {
			return
		}
		result := m.check(c)
		switch {
		case result.unknown:
			continue
		case result.record == nil:
			m.containers.clearMissed(c, false)
			continue
		}
		if m.containers.recordMissed(c, result.record) {
			if lines++; lines <= maxMissedLines {
				m.containerLog(c.pod, c.c).WithField("requests", describeRequests(result.record.Requests)).
					Warn("the container was created while jackfield-nri was not connected, and runs without what it requested")
			}
		}
		if result.deliverable {
			evictable = append(evictable, c)
		}
	}
	if more := lines - maxMissedLines; more > 0 {
		m.log.WithField("containers", more).
			Warn("more containers run without what they requested: `jackfield status` lists them")
	}
	if current := m.current(); current != nil && current.cfg.Missed == config.MissedEvict {
		m.evictAll(evictable)
	}
}

// missedResult is the result of the check of one container.
type missedResult struct {
	unknown     bool              // the check failed
	record      *status.Container // the requests that the container runs without; nil for none
	deliverable bool              // all of them could be delivered now
}

// check reports the missing requests of a container. The result is unknown, and the check is repeated, if a source is unavailable:
// a container must not be evicted because the kubelet restarts.
func (m *missedContainers) check(c *container) missedResult {
	defer m.recoverPanic(new(error), c.pod)
	current := m.current()
	req := newRequest(m.runtime.name(), c.pod, c.c)
	if m.containers.recordOf(req.ContainerID) != nil || m.wasInjected(current, req) || current.engine.HasNoRequests(req) {
		return missedResult{}
	}
	ctx, cancel := context.WithTimeout(m.closing, missedCheckTimeout)
	defer cancel()
	plan, err := current.engine.Explain(ctx, req)
	if ctx.Err() != nil || errdefs.IsUnavailable(err) {
		return missedResult{unknown: true}
	}
	items := missedItems(plan.Items)
	var whole *engine.Error
	if len(items) == 0 && (err == nil || len(plan.Items) > 0 || !errors.As(err, &whole)) {
		return missedResult{}
	}
	record := m.outcomes.newRecord(c.pod, c.c, items, nil)
	if created := c.c.GetCreatedAt(); created > 0 {
		record.Since = time.Unix(0, created).UTC()
	}
	if len(items) == 0 {
		// The requests cannot be parsed.
		record.Requests = []status.Request{
			{Request: "the requests of the pod", Outcome: string(engine.Failed), Reason: diag.ErrorText(err)}}
	}
	if err == nil {
		_, err = nriapply.Adjustment(&plan.Set, m.runtime.capabilitiesFor(req), req.Have.Devices...)
	}
	return missedResult{record: &record, deliverable: err == nil}
}

// wasInjected reports whether the runtime's description of a container shows an injection by Jackfield, or
// the OCI hook has a record of the container.
func (m *missedContainers) wasInjected(current *core, req *engine.Request) bool {
	if req.ContainerAnnotations[usageAnnotation] != "" {
		return true
	}
	// Only the container's own directory counts: another source can be mounted at the same place.
	own := m.host.Path(edit.ContainerDir(current.cfg.StateDir, req.ContainerID))
	for i := range req.Have.Mounts {
		if req.Have.Mounts[i].Source == own {
			return true
		}
	}
	// A directory that cannot be read has no records.
	ids, _ := staging.RecordedContainers(m.host, staging.HookDir(current.cfg.StateDir), req.SandboxID)
	return slices.Contains(ids, req.ContainerID)
}

// missedItems returns the requests that a container lacks. An optional request need not be delivered, and
// hooks of hooks.d directories leave no trace in a running container.
func missedItems(items []engine.Item) []engine.Item {
	return slices.DeleteFunc(slices.Clone(items), func(it engine.Item) bool {
		lacks := it.Outcome == engine.Injected || it.FailsContainer()
		return !lacks || it.Optional || it.Kind == engine.KindHook
	})
}

// describeRequests returns requests for the log, each with the reason why it is not deliverable.
func describeRequests(requests []status.Request) []string {
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

// evictAll stops containers, one after the other. It checks each container again right before: a container
// that ended, or whose requests would be refused now, is not stopped.
//
// NRI has messages for evictions, but no version of it (0.12.5 is the newest) passes evictions by a plugin
// to the runtime. So the containers are stopped over CRI.
func (m *missedContainers) evictAll(containers []*container) {
	for _, c := range containers {
		if m.closing.Err() != nil || !m.containers.isEvictable(c) || !m.check(c).deliverable {
			continue
		}
		log := m.containerLog(c.pod, c.c)
		if err := m.evict(c.c.GetId()); err != nil {
			log.WithError(err).Error("the container, which runs without what it requested, could not be evicted; " +
				"trying again in a minute")
			if errdefs.IsNotFound(err) || grpcstatus.Code(err) == codes.Unavailable {
				return // without the runtime the next eviction would also fail
			}
			continue
		}
		m.containers.clearMissed(c, true)
		log.Warn("evicted the container, which ran without what it requested: " +
			"the kubelet creates it again as the pod's restartPolicy says")
		deadline.Sleep(m.closing, evictionInterval)
	}
}

// evict stops a container by the runtime's CRI socket, so that the kubelet creates it again by its restart policy.
func (m *missedContainers) evict(id string) error {
	runtime := m.runtime.name()
	defaults := map[string]string{"containerd": "/run/containerd/containerd.sock", crio: "/run/crio/crio.sock"}
	socket := cmp.Or(m.current().cfg.Runtime.Socket, defaults[runtime])
	if socket == "" {
		return fmt.Errorf("the CRI socket of runtime %q is unknown: set runtime.socket: %w", runtime, errdefs.ErrNotFound)
	}
	ctx, cancel := context.WithTimeout(m.closing, evictionTimeout)
	defer cancel()
	if err := stopContainer(ctx, m.host, socket, id); err != nil {
		return fmt.Errorf("stop container over the CRI socket %s (runtime.socket): %w", socket, err)
	}
	return nil
}

// stopContainer kills a container over CRI. The runtimes' own NRI evictions also send SIGKILL: a Job that exits
// 0 on SIGTERM would count as completed.
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
	// A StopContainerRequest with an ID and no timeout encodes like a StringValue, whose field 1 is the text.
	// The response has no field.
	return cc.Invoke(ctx, "/runtime.v1.RuntimeService/StopContainer", wrapperspb.String(id), &emptypb.Empty{})
}
