// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"
	"github.com/sirupsen/logrus"

	"github.com/jackfield/jackfield/internal/deadline"
	"github.com/jackfield/jackfield/internal/diag"
	"github.com/jackfield/jackfield/internal/telemetry"
	nriapply "github.com/jackfield/jackfield/pkg/apply/nri"
	"github.com/jackfield/jackfield/pkg/apply/nri/capability"
	"github.com/jackfield/jackfield/pkg/attachment"
	"github.com/jackfield/jackfield/pkg/edits"
	"github.com/jackfield/jackfield/pkg/resolve"
)

// A container is created in five steps: precheck (hasNoRequests), resolve, adjust, stage and record
// (createContainer). The first four can hang on a file system of the host, so a worker does them,
// while the handler keeps the runtime's deadline. What is on the host is created last before the
// answer, and removed where the runtime got another answer meanwhile.

// CreateContainer injects what the container requests and the policy grants.
func (p *Plugin) CreateContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	defer p.endHandler(telemetry.CreateContainer, p.beginHandler())
	p.counters.Containers.Add(1)
	if p.hasNoRequests(ctx, pod, c) {
		p.counters.Untouched.Add(1)
		return nil, nil, nil
	}
	adjust, err := p.createOnWorker(ctx, pod, c)
	if err != nil {
		return nil, nil, newRefusal(pod, c, err)
	}
	return adjust, nil, nil
}

// hasNoRequests reports that there is nothing to do for the container. The check runs on a
// worker, because checking a directory for changes can hang. A pod whose annotations request
// nothing is not kept from the node by an unresponsive directory.
func (p *Plugin) hasNoRequests(ctx context.Context, pod *api.PodSandbox, c *api.Container) bool {
	current := p.config.core.Load()
	if current.engine.MayAsk(pod.GetAnnotations()) {
		return false
	}
	if p.dirs.Check(current.cfg.DeviceInfo.CNIDir) != nil {
		return current.engine.Hooks() == nil // hooks do not need the directory
	}
	// A third of the time, so that enough is left for resolving.
	nothing, err := deadline.Run(p.workers, p.timeLeft(ctx)/3, func() (nothing bool, err error) {
		defer p.recoverPanic(func() *logrus.Entry { return p.podLog(pod) }) // the caller then resolves the container
		return current.engine.HasNoRequests(pod.GetId(), pod.GetAnnotations(), c.GetEnv(), hasDeviceMetadata(c)), nil
	})
	if errors.Is(err, deadline.ErrTimeout) {
		p.counters.CountTimeout(telemetry.CreateContainer)
		p.containerLog(pod, c).Warn("a host directory is unresponsive: the container, whose pod requests nothing, is created unchecked")
	}
	return nothing || err != nil
}

// hasDeviceMetadata reports whether the container has a mount of metadata of a resource claim.
func hasDeviceMetadata(c *api.Container) bool {
	return slices.ContainsFunc(c.GetMounts(), func(m *api.Mount) bool { return attachment.IsMetadataMount(m.GetDestination()) })
}

// decision ensures that exactly one party answers the runtime: the worker that resolved the
// container, or the handler whose deadline expired. Only the winner logs, counts and keeps
// state, so these always agree with the answer.
type decision struct{ claimed atomic.Bool }

// claimAnswer reports whether the caller is the one that answers.
func (d *decision) claimAnswer() bool { return d.claimed.CompareAndSwap(false, true) }

// createOnWorker runs createContainer on a worker and answers before the runtime's deadline: a
// file system that hangs blocks the worker, never the runtime.
func (p *Plugin) createOnWorker(ctx context.Context, pod *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, error) {
	ctx, cancel := p.handlerContext(ctx)
	defer cancel()
	type result struct {
		adjust *api.ContainerAdjustment
		err    error
	}
	var answer decision
	done := make(chan result, 1)
	begun := p.workers.Go(func() {
		var r result
		defer func() {
			if v := recover(); v != nil {
				r = result{err: p.reportPanic(p.podLog(pod), v)}
				p.refuseContainer(&answer, pod, c, r.err)
			}
			done <- r
		}()
		r.adjust, r.err = p.createContainer(ctx, pod, c, &answer)
	})
	if !begun {
		return nil, p.timeOut(pod, c, errNoWorker())
	}
	select {
	case r := <-done:
		if r.err == nil || ctx.Err() == nil || !answer.claimAnswer() {
			return r.adjust, r.err
		}
	case <-ctx.Done():
		if !answer.claimAnswer() {
			r := <-done // the worker has decided, and delivers its answer now
			return r.adjust, r.err
		}
	}
	return nil, p.timeOut(pod, c, p.errTimeout())
}

// createContainer resolves the container's requests, stages its sockets, and returns the
// adjustment. It runs on a worker.
func (p *Plugin) createContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container, answer *decision) (*api.ContainerAdjustment, error) {
	current := p.config.core.Load()
	p.forgetFailedCreations(current, pod, c)
	req := p.request(pod, c)
	can := p.capabilitiesFor(req.UserNS != nil)
	req.CanDeliver = func(set *edits.Set, request string) error { return capability.Check(set, can, request) }

	plan, err := current.engine.Resolve(ctx, req)
	if err != nil {
		p.refuseContainer(answer, pod, c, err)
		return nil, err
	}
	if plan == nil {
		if answer.claimAnswer() {
			p.counters.Untouched.Add(1)
		}
		return nil, nil
	}
	created := false
	defer func() {
		if !created {
			p.containers.ledger.Drop(req.SandboxID, req.ContainerID)
		}
	}()

	adjust, err := nriapply.Adjustment(&plan.Set, can, req.Have.Devices...)
	if err == nil && ctx.Err() != nil {
		return nil, ctx.Err() // too late: nothing is created, and the handler answers
	}
	if err == nil && plan.Staging != nil {
		err = p.prepareStaging(current, plan)
	}
	if err != nil {
		p.refuseContainer(answer, pod, c, err)
		return nil, err
	}
	if !answer.claimAnswer() {
		// The runtime has had an error meanwhile. This is a worker: the removal can hang.
		if plan.Staging != nil {
			p.forgetContainer(pod, c)(current.store)
		}
		return nil, context.DeadlineExceeded
	}
	created = true
	p.recordCreation(pod, c, req, plan, adjust)
	return markUsage(adjust, plan.Usage), nil
}

// prepareStaging creates what the adjustment refers to in the state directory.
func (p *Plugin) prepareStaging(current *core, plan *resolve.Plan) error {
	if err := p.storeFault(current); err != nil {
		return err
	}
	return current.store.Prepare(*plan.Staging)
}

// recordCreation keeps what the container was given.
func (p *Plugin) recordCreation(pod *api.PodSandbox, c *api.Container, req *resolve.Request, plan *resolve.Plan, adjust *api.ContainerAdjustment) {
	p.containers.creations.addCreation(pod, c, plan.Usage, adjust)
	if plan.Staging != nil {
		req.Have.Mounts = append(req.Have.Mounts, plan.Set.Mounts...)
		req.Have.Devices = append(req.Have.Devices, plan.Set.Devices...)
		p.containers.hotplug.addContainer(req)
	}
	p.reportCreated(pod, c, plan)
}

// errTimeout is the error for a container whose work was not done in time.
func (p *Plugin) errTimeout() error {
	which := ""
	if faults := p.dirs.Faults(); len(faults) > 0 {
		which = " (" + strings.Join(faults, "; ") + ")"
	}
	return errdefs.ErrUnavailable.WithMessage("given up before the runtime's deadline: a file system or socket of this host is unresponsive" + which)
}

// timeOut reports a container that is refused for want of an answer, and returns err.
func (p *Plugin) timeOut(pod *api.PodSandbox, c *api.Container, err error) error {
	p.counters.TimedOut.Add(1)
	p.counters.CountTimeout(telemetry.CreateContainer)
	p.reportRefused(pod, c, err)
	return err
}

// refuseContainer reports that a container is refused, unless the runtime has another answer already.
func (p *Plugin) refuseContainer(answer *decision, pod *api.PodSandbox, c *api.Container, err error) {
	if answer.claimAnswer() {
		p.reportRefused(pod, c, err)
	}
}

// refusal is the error that the runtime reports in an event of the pod. Its text names the
// container and has no sentinel.
type refusal struct {
	container string // namespace/pod/container
	err       error
}

func newRefusal(pod *api.PodSandbox, c *api.Container, err error) error {
	return refusal{(&resolve.Request{Namespace: pod.GetNamespace(), Pod: pod.GetName(), Container: containerName(c)}).Name(), err}
}

func (r refusal) Error() string {
	return fmt.Sprintf("jackfield: container %q: %s", r.container, diag.ErrorText(withoutContainer(r.err)))
}

func (r refusal) Unwrap() error { return r.err }
