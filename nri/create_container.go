// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"fmt"
	"slices"

	"github.com/containerd/nri/pkg/api"

	"github.com/jackfield/jackfield/internal/diag"
	"github.com/jackfield/jackfield/internal/telemetry"
	nriapply "github.com/jackfield/jackfield/pkg/apply/nri"
	"github.com/jackfield/jackfield/pkg/apply/nri/capability"
	"github.com/jackfield/jackfield/pkg/attachment"
	"github.com/jackfield/jackfield/pkg/edits"
	"github.com/jackfield/jackfield/pkg/resolve"
)

// A container is created in five steps: precheck (hasNoRequests), resolve, adjust and stage
// (prepareCreation), and record (recordCreation). The first four can hang on a file system of the
// host, so a worker does them, while the handler keeps the runtime's deadline. What is on the host
// is created last before the answer, and removed where the runtime got another answer meanwhile.

// CreateContainer injects what the container requests and the policy grants.
func (p *Plugin) CreateContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) (_ *api.ContainerAdjustment, _ []*api.ContainerUpdate, err error) {
	defer p.endHandler(telemetry.CreateContainer, p.beginHandler())
	p.counters.Containers.Add(1)
	log := p.podLog(pod)
	defer p.recoverPanic(&err, log)
	if p.hasNoRequests(ctx, pod, c) {
		p.counters.Untouched.Add(1)
		return nil, nil, nil
	}
	made, err := runOrHandOver(ctx, p, telemetry.CreateContainer, log, func(ctx context.Context) (*creation, error) {
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
	ctx, cancel := context.WithTimeout(ctx, p.timeLeft(ctx)/3)
	defer cancel()
	log := p.containerLog(pod, c)
	nothing, err := runOrHandOver(ctx, p, telemetry.CreateContainer, log, func(context.Context) (bool, error) {
		return current.engine.HasNoRequests(pod.GetId(), pod.GetAnnotations(), c.GetEnv(), hasDeviceMetadata(c)), nil
	}, func(bool) {})
	if isTimeout(err) {
		log.WithError(err).Warn("a host directory is unresponsive: the container, whose pod requests nothing, is created unchecked")
	}
	return nothing || isTimeout(err)
}

// hasDeviceMetadata reports whether the container has a mount of metadata of a resource claim.
func hasDeviceMetadata(c *api.Container) bool {
	return slices.ContainsFunc(c.GetMounts(), func(m *api.Mount) bool { return attachment.IsMetadataMount(m.GetDestination()) })
}

// prepareCreation resolves the container's requests, stages its sockets, and makes the
// adjustment. It runs on a worker. The creation is nil for a container that gets nothing.
func (p *Plugin) prepareCreation(ctx context.Context, pod *api.PodSandbox, c *api.Container) (_ *creation, err error) {
	current := p.config.core.Load()
	p.forgetFailedCreations(current, pod, c)
	req := p.request(pod, c)
	can := p.capabilitiesFor(req.UserNS != nil)
	req.CanDeliver = func(set *edits.Set, request string) error { return capability.Check(set, can, request) }

	plan, err := current.engine.Resolve(ctx, req)
	if plan == nil || err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			p.containers.ledger.Drop(req.SandboxID, req.ContainerID)
		}
	}()
	adjust, err := nriapply.Adjustment(&plan.Set, can, req.Have.Devices...)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err // too late: nothing is created
	}
	if plan.Staging != nil {
		if err := p.prepareStaging(current, plan); err != nil {
			return nil, err
		}
	}
	return &creation{pod: pod, c: c, req: req, plan: plan, adjust: adjust, store: current.store}, nil
}

// prepareStaging creates what the adjustment refers to in the state directory.
func (p *Plugin) prepareStaging(current *core, plan *resolve.Plan) error {
	if err := p.storeFault(current); err != nil {
		return err
	}
	return current.store.Prepare(*plan.Staging)
}

// undoCreation removes what was created for a container that the runtime was refused meanwhile.
func (p *Plugin) undoCreation(made *creation) {
	if made == nil {
		return
	}
	remove := p.forgetContainer(made.pod, made.c)
	if made.plan.Staging != nil {
		remove(made.store)
	}
}

// recordCreation keeps and reports what the container was given.
func (p *Plugin) recordCreation(made *creation) {
	p.containers.creations.addCreation(made)
	if made.plan.Staging != nil {
		made.req.Have.Mounts = append(made.req.Have.Mounts, made.plan.Set.Mounts...)
		made.req.Have.Devices = append(made.req.Have.Devices, made.plan.Set.Devices...)
		p.containers.hotplug.addContainer(made.req)
	}
	p.reportCreated(made.pod, made.c, made.plan)
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
