// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"

	"github.com/jackfield/jackfield/internal/base/deadline"
	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/config/policy"
	nriapply "github.com/jackfield/jackfield/internal/deliver/nri"
	"github.com/jackfield/jackfield/internal/deliver/nri/capability"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/engine"
	"github.com/jackfield/jackfield/internal/report/telemetry"
)

// A container is created in five steps: precheck (hasNoRequests), resolve, adjust and stage
// (prepareCreation), and record (recordCreation). The first four can hang on a file system of the
// host, so a worker does them, while the handler keeps the runtime's deadline. What is on the host
// is created last before the answer, and removed where the runtime got another answer meanwhile.

// CreateContainer injects what the container requests and the policy grants.
func (p *Plugin) CreateContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) (_ *api.ContainerAdjustment, _ []*api.ContainerUpdate, err error) {
	defer p.timeCall(telemetry.CreateContainer)()
	p.counters.Containers.Add(1)
	defer p.recoverPanic(&err, pod)
	if err := p.checkRuntime(pod, c); err != nil {
		p.reportRefused(pod, c, err)
		return nil, nil, newRefusal(pod, c, err)
	}
	if p.hasNoRequests(ctx, pod, c) {
		p.counters.Untouched.Add(1)
		return nil, nil, nil
	}
	made, err := runOrHandOver(ctx, p, telemetry.CreateContainer, pod, func(ctx context.Context) (*creation, error) {
		return p.prepareCreation(ctx, pod, c)
	}, p.undoCreation)
	if isTimeout(err) {
		p.counters.TimedOut.Add(1)
		err = p.explainTimeout(err)
	}
	if err != nil {
		p.reportRefused(pod, c, err)
		return nil, nil, newRefusal(pod, c, err)
	}
	if made == nil {
		p.counters.Untouched.Add(1)
		return nil, nil, nil
	}
	p.recordCreation(made)
	return markUsage(made.adjust, made.plan.Usage), nil, nil
}

// checkRuntime refuses a container that requests something from a runtime that cannot deliver it. dockerd
// passes annotations and labels with the container and not with its pod.
func (p *Plugin) checkRuntime(pod *api.PodSandbox, c *api.Container) error {
	why := p.runtime.info.Load().Limitation()
	if why == "" {
		return nil
	}
	engine := p.config.core.Load().engine
	for _, requests := range []map[string]string{pod.GetAnnotations(), c.GetAnnotations(), c.GetLabels()} {
		if engine.MayAsk(requests) {
			return p.unsupportedRuntime(why, "the container's annotations or labels")
		}
	}
	return nil
}

func (p *Plugin) unsupportedRuntime(why, request string) error {
	return errdefs.ErrNotImplemented.WithMessage(fmt.Sprintf("%s: runtime %q is not supported: %s; "+
		"use containerd or CRI-O, or Podman with jackfield-hook, or create the container without the request", request, p.runtimeName(), why))
}

// hasNoRequests reports that there is nothing to do for the container. The check runs on a
// worker, because checking a directory for changes can hang. A pod whose annotations request
// nothing is not kept from the node by an unresponsive directory.
func (p *Plugin) hasNoRequests(ctx context.Context, pod *api.PodSandbox, c *api.Container) bool {
	current := p.config.core.Load()
	if current.engine.MayAsk(pod.GetAnnotations()) {
		return false
	}
	if p.config.dirs.Check(current.cfg.DeviceInfo.CNIDir) != nil {
		return len(current.cfg.Hooks.Dirs) == 0 // hooks do not need the directory
	}
	// A third of the time, so that enough is left for resolving.
	nothing, err := deadline.Run(p.workers, p.timeLeft(ctx)/3, func() (nothing bool, err error) {
		defer p.recoverPanic(&err, pod)
		return current.engine.HasNoRequests(newRequest(p.runtimeName(), pod, c)), nil
	})
	if isTimeout(err) {
		p.counters.CountTimeout(telemetry.CreateContainer)
		p.containerLog(pod, c).WithError(err).Warn("a host directory is unresponsive: the container, whose pod requests nothing, is created unchecked")
	}
	return nothing || isTimeout(err)
}

// creation is one container that was given something.
type creation struct {
	pod    *api.PodSandbox
	c      *api.Container
	req    *engine.Request
	plan   *engine.Plan
	adjust *api.ContainerAdjustment // what the runtime was answered
	asOf   uint64                   // hotplug.changes before its requests were resolved
}

// prepareCreation resolves the container's requests, stages its sockets, and makes the
// adjustment. It runs on a worker. The creation is nil for a container that gets nothing.
func (p *Plugin) prepareCreation(ctx context.Context, pod *api.PodSandbox, c *api.Container) (_ *creation, err error) {
	current := p.config.core.Load()
	asOf := p.containers.hotplug.changes.Load()
	if p.runtime.unsynchronized.Load() {
		p.containers.addPreexisting(pod)
	}
	p.forgetFailedCreations(pod, c)
	req := newRequest(p.runtimeName(), pod, c)
	can := p.capabilitiesFor(req)
	req.CanDeliver = func(set *edit.Set, request string) error { return capability.Check(set, can, request) }

	plan, err := current.engine.Resolve(ctx, req)
	if plan == nil || err != nil {
		return nil, err
	}
	if why := p.runtime.info.Load().Limitation(); why != "" && len(plan.Items) > 0 {
		p.containers.ledger.Drop(req.SandboxID, req.ContainerID)
		return nil, p.unsupportedRuntime(why, plan.Items[0].Request)
	}
	defer func() {
		if err != nil {
			p.containers.ledger.Drop(req.SandboxID, req.ContainerID)
			p.removeIfPodIsGone(pod)
		}
	}()
	plan.DropGroups(can.UnneededGroup)
	adjust, err := nriapply.Adjustment(&plan.Set, can, req.Have.Devices...)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err // too late: nothing is created
	}
	if plan.Staging != nil {
		// The kubelet creates a container again only after its predecessor has ended.
		plan.Staging.Successor = len(plan.Staging.SocketDirs) > 0 && p.containers.isSuccessor(pod.GetId(), containerName(c))
		if err := p.state.store.Load().Prepare(*plan.Staging); err != nil {
			return nil, err
		}
	}
	return &creation{pod: pod, c: c, req: req, plan: plan, adjust: adjust, asOf: asOf}, nil
}

// undoCreation removes what a worker created for a container after its deadline, when the runtime
// had been refused already.
func (p *Plugin) undoCreation(made *creation) {
	if made == nil {
		return
	}
	remove := p.forgetContainer(made.pod, made.c)
	if made.plan.Staging != nil {
		remove(p.state.store.Load())
		p.removeIfPodIsGone(made.pod)
	}
}

// removeIfPodIsGone removes what a worker created for a pod whose removal was reported meanwhile.
func (p *Plugin) removeIfPodIsGone(pod *api.PodSandbox) {
	if !p.containers.hasSandbox(pod.GetId()) {
		p.reportRemoval(p.podLog(pod), "the pod", p.state.store.Load().RemoveIdleSandbox(pod.GetId()))
	}
}

// recordCreation keeps and reports what the container was given. A container is updated soon if device-info
// files changed meanwhile, or if it has metadata of claims: a driver may have changed the metadata before it
// was watched.
func (p *Plugin) recordCreation(made *creation) {
	var running *runningContainer
	if made.plan.Staging != nil {
		made.req.Have.Mounts = append(withoutReplaced(made.req.Have.Mounts, made.plan.Set.Mounts), made.plan.Set.Mounts...)
		made.req.Have.Devices = append(made.req.Have.Devices, made.plan.Set.Devices...)
		running = &runningContainer{req: made.req}
	}
	p.containers.addCreation(made, running)
	if running != nil && (made.req.HasDeviceMetadata() || made.asOf != p.containers.hotplug.changes.Load()) {
		p.containers.hotplug.markContainerDirty(running)
	}
	p.reportCreated(made.pod, made.c, made.plan)
}

// withoutReplaced returns the mounts of a container that mounts of the plan do not replace.
func withoutReplaced(have, set []edit.Mount) []edit.Mount {
	return slices.DeleteFunc(have, func(h edit.Mount) bool {
		return slices.ContainsFunc(set, func(m edit.Mount) bool { return m.Replaces != "" && m.Replaces == h.Destination })
	})
}

// A runtime does not always report that a creation failed after NRI's part of it: CRI-O does not
// when the OCI runtime fails. The kubelet starts each container of a pod before it creates the next
// one, so what has not started by then never will.
//
// A container that was created and has no StartContainer is forgotten when another one takes its
// name, and otherwise with its pod. Until then it counts against no limit and is not in the status.

// isPending reports whether a container has not started, as far as the runtime reports that. The
// lock is held.
func (t *containerTable) isPending(c *container) bool { return t.reportsStarts && c.creation != nil }

// adjustmentOf is what the runtime was answered for a container that has not started; nil for
// nothing.
func (t *containerTable) adjustmentOf(id string) *api.ContainerAdjustment {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.containers[id]; c != nil && c.creation != nil {
		return c.creation.adjust
	}
	return nil
}

// forgetFailedCreations forgets earlier attempts to create a container of this name, and counts
// what else never started in the pod against no limit. It runs on a worker.
func (p *Plugin) forgetFailedCreations(pod *api.PodSandbox, c *api.Container) {
	table := p.containers.containerTable
	failed := table.list(func(one *container) bool {
		return table.isPending(one) && one.pod.GetId() == pod.GetId() && one.c.GetId() != c.GetId()
	})
	for _, one := range failed {
		if containerName(one.c) != containerName(c) {
			p.containers.ledger.Drop(pod.GetId(), one.c.GetId())
			continue
		}
		p.containerLog(one.pod, one.c).WithField("next", c.GetId()).Info("the container never started: removed its state")
		p.forgetContainer(one.pod, one.c)(p.state.store.Load())
	}
	p.forgetPredecessor(pod, c)
}

// refusal is the error that the runtime reports in an event of the pod. Its text names the
// container and has no sentinel.
type refusal struct {
	container string // namespace/pod/container
	err       error
}

func newRefusal(pod *api.PodSandbox, c *api.Container, err error) error {
	return refusal{(&engine.Request{Namespace: pod.GetNamespace(), Pod: pod.GetName(), Container: containerName(c)}).Name(), err}
}

func (r refusal) Error() string {
	return fmt.Sprintf("jackfield: container %q: %s", r.container, diag.ErrorText(withoutContainer(r.err)))
}

func (r refusal) Unwrap() error { return r.err }

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
		return policy.Usage{}, fmt.Errorf("invalid value %s: must be %s with counts from 0 to %d: %w", diag.Quote(text), strings.ReplaceAll(usageFormat, "%d", "N"), maxUsage, errdefs.ErrInvalidArgument)
	}
	return u, nil
}

// restoreUsage reads from the annotations what living containers were given.
func (p *Plugin) restoreUsage(containers []*api.Container) {
	p.containers.ledger.Retain(p.containers.hasSandbox, p.containers.hasContainer)
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
		p.containers.ledger.RecordUsage(c.GetPodSandboxId(), containerName(c), c.GetId(), u)
	}
}
