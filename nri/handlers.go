// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/nri/pkg/api"

	nriapply "github.com/jackfield/jackfield/pkg/apply/nri"
	"github.com/jackfield/jackfield/pkg/edits"
	"github.com/jackfield/jackfield/pkg/resolve"
	"github.com/jackfield/jackfield/pkg/staging"
	"github.com/jackfield/jackfield/pkg/telemetry"
)

// events are those the plugin subscribes to. All of them are as old as NRI 0.2:
// a runtime refuses the registration of a plugin that asks for one it does not
// know.
func events() api.EventMask {
	var mask api.EventMask
	mask.Set(api.Event_RUN_POD_SANDBOX, api.Event_CREATE_CONTAINER, api.Event_START_CONTAINER, api.Event_STOP_CONTAINER,
		api.Event_REMOVE_CONTAINER, api.Event_REMOVE_POD_SANDBOX)
	return mask
}

// Configure is the first call after registration. A runtime that started the
// plugin itself hands over its drop-in configuration, which then takes the place
// of the file.
func (p *Plugin) Configure(_ context.Context, cfg, runtime, version string) (api.EventMask, error) {
	defer p.end(telemetry.Configure, p.begin())
	log := p.log.WithField("runtime", runtime+" "+version)
	if cfg != "" && !p.opts.ConfigGiven {
		if err := p.configure([]byte(cfg)); err != nil {
			log.WithError(err).Error("configuration handed over by the runtime is refused")
			return 0, err
		}
	}
	if p.core.Load() == nil {
		if err := p.start(); err != nil {
			log.WithError(err).Error("the configuration cannot be used")
			return 0, err
		}
	}
	nriVersion := p.runtimeNRIVersion(runtime, version)
	can := nriapply.CapabilitiesOf(nriVersion)
	p.can.Store(&can)
	p.noteTimeout()
	p.warnOfTwoReaders(runtime)
	p.runtimeInfo.Store(&runtimeInfo{runtime, version, nriVersion})
	p.configured()
	log.WithField("nri", nriVersion).Info("registered with the runtime")
	mask := events()
	if p.validates(nriVersion) || p.guards() {
		mask.Set(api.Event_VALIDATE_CONTAINER_ADJUSTMENT)
	}
	return mask, nil
}

// Synchronize tells what lives. Whatever was kept for anything else goes.
func (p *Plugin) Synchronize(ctx context.Context, pods []*api.PodSandbox, containers []*api.Container) ([]*api.ContainerUpdate, error) {
	defer p.end(telemetry.Synchronize, p.begin())
	sandboxes := make(map[string]bool, len(pods))
	for _, pod := range pods {
		sandboxes[pod.GetId()] = true
	}
	alive := make(map[string]bool, len(containers))
	for _, c := range containers {
		alive[c.GetId()] = true
	}
	p.creations.reset()
	p.noteUsage(sandboxes, alive, containers)
	p.untold.synchronize(pods)
	p.inStore(ctx, telemetry.Synchronize, func(store *staging.Store) {
		if err := store.Retain(func(id string) bool { return sandboxes[id] }, func(id string) bool { return alive[id] }); err != nil {
			p.counters.CleanupFailed.Add()
			p.log.WithError(err).Warn("something of containers that are gone could not be removed")
		}
		p.hotplug.synchronize(store, pods, containers)
	})
	p.log.WithField("pods", len(pods)).WithField("containers", len(containers)).Info("synchronized")
	p.tracker.synchronize(pods, alive)
	p.missed.synchronize(pods, containers)
	p.counters.Connections.Add()
	p.connected.Store(true)
	return nil, nil
}

// warmAfter is how long after a sandbox its device-info files are read, so that
// they are settled, and still before the kubelet has the first container created.
const warmAfter = 25 * time.Millisecond

// RunPodSandbox comes after CNI ADD: what the pod's networks are is on the node.
// It is read ahead, after the runtime has its answer.
func (p *Plugin) RunPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	defer p.end(telemetry.RunPodSandbox, p.begin())
	p.tracker.live(pod)
	time.AfterFunc(warmAfter, func() {
		p.workers.do(func() {
			defer func() {
				if r := recover(); r != nil {
					_ = p.caught(p.podLog(pod), r) // nobody waits
				}
			}()
			p.core.Load().engine.Warm(request(p.runtimeName(), pod, nil))
		})
	})
	return nil
}

// CreateContainer is where a container gets what it was granted.
func (p *Plugin) CreateContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	defer p.end(telemetry.CreateContainer, p.begin())
	p.counters.Containers.Add()
	if p.nothing(ctx, pod, c) {
		p.counters.Untouched.Add()
		return nil, nil, nil
	}
	adjust, err := p.answered(ctx, pod, c)
	return adjust, nil, err
}

func (p *Plugin) createContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container, last *verdict) (*api.ContainerAdjustment, error) {
	core := p.core.Load()
	p.forgetFailed(core, pod, c)
	req := request(p.runtimeName(), pod, c)
	can := *p.can.Load()
	can.UserNS = req.UserNS != nil
	req.Carries = func(set *edits.Set, request string) error { return nriapply.Carries(set, can, request) }
	plan, err := core.engine.Resolve(ctx, req)
	if err != nil {
		p.refusedBy(last, pod, c, err)
		return nil, fmt.Errorf("jackfield: %w", err)
	}
	if plan == nil {
		p.counters.Untouched.Add()
		return nil, nil
	}
	created := false
	defer func() {
		if !created {
			p.ledger.Drop(req.SandboxID, req.ContainerID)
		}
	}()
	adjust, err := nriapply.Adjustment(&plan.Set, can, req.Have.Devices...)
	if err != nil {
		p.refusedBy(last, pod, c, err)
		return nil, fmt.Errorf("jackfield: %w", &resolve.Error{Container: req.Name(), Errs: []error{err}})
	}
	if err := ctx.Err(); err != nil {
		// The answer would come too late: nothing is made that nobody uses, and the
		// runtime is told by whoever waits for this.
		return nil, err
	}
	if plan.Staging != nil {
		err := p.noStoreOf(core)
		if err == nil {
			err = core.store.Prepare(*plan.Staging)
		}
		if err != nil {
			err = &resolve.Error{Container: req.Name(), Errs: []error{err}}
			p.refusedBy(last, pod, c, err)
			return nil, fmt.Errorf("jackfield: %w", err)
		}
	}
	if !last.say() {
		// The runtime has had an error meanwhile: nobody uses what was made.
		if plan.Staging != nil {
			p.forgotten(pod, c)(core.store) // here: this is a worker already, whose time is over
		}
		return nil, context.DeadlineExceeded
	}
	created = true
	p.creations.begin(pod, c, plan.Usage, adjust)
	if plan.Staging != nil {
		req.Have.Mounts = append(req.Have.Mounts, plan.Set.Mounts...)
		req.Have.Devices = append(req.Have.Devices, plan.Set.Devices...)
		p.hotplug.add(req)
	}
	adjust = markUsage(adjust, plan.Usage)
	p.report(pod, c, plan)
	return adjust, nil
}

// StartContainer says that a container was created and starts.
func (p *Plugin) StartContainer(_ context.Context, pod *api.PodSandbox, c *api.Container) error {
	defer p.end(telemetry.StartContainer, p.begin())
	p.creations.started(pod.GetId(), c.GetId(), &p.ledger)
	return nil
}

// StopContainer comes when a container was stopped, or ended by itself.
func (p *Plugin) StopContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) ([]*api.ContainerUpdate, error) {
	defer p.end(telemetry.StopContainer, p.begin())
	if c.GetState() == api.ContainerState_CONTAINER_STOPPED {
		p.inStore(ctx, telemetry.StopContainer, p.forgotten(pod, c))
	}
	return nil, nil
}

// RemoveContainer removes what was kept for the container.
func (p *Plugin) RemoveContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) error {
	defer p.end(telemetry.RemoveContainer, p.begin())
	remove := p.forgotten(pod, c)
	p.inStore(ctx, telemetry.RemoveContainer, func(store *staging.Store) {
		remove(store)
		if !p.untold.has(pod.GetId()) {
			return
		}
		// With the last container the pod's socket directories are removed. One that is
		// created later has them created again.
		if err := store.RemoveIdleSandbox(pod.GetId()); err != nil {
			p.counters.CleanupFailed.Add()
			p.podLog(pod).WithError(err).Warn("something of the pod could not be removed")
		}
	})
	return nil
}

// forgotten drops what is known of a container, and gives what removes what was kept
// for it on the host, which may hang.
func (p *Plugin) forgotten(pod *api.PodSandbox, c *api.Container) (remove func(*staging.Store)) {
	p.tracker.forget(c.GetId())
	p.creations.forget(pod.GetId(), c.GetId())
	p.missed.forget(c.GetId())
	p.hotplug.remove(pod.GetId(), c.GetId())
	p.ledger.Drop(pod.GetId(), c.GetId())
	return func(store *staging.Store) {
		if err := store.RemoveContainer(pod.GetId(), c.GetId()); err != nil {
			p.counters.CleanupFailed.Add()
			p.containerLog(pod, c).WithError(err).Warn("something of the container could not be removed")
		}
	}
}

// RemovePodSandbox removes what was kept for the pod's containers and sockets.
func (p *Plugin) RemovePodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	defer p.end(telemetry.RemovePodSandbox, p.begin())
	p.ledger.Forget(pod.GetId())
	p.creations.forgetSandbox(pod.GetId())
	p.tracker.dead(pod.GetId())
	p.missed.forgetSandbox(pod.GetId())
	p.hotplug.removeSandbox(pod.GetId())
	p.untold.forget(pod.GetId())
	p.inStore(ctx, telemetry.RemovePodSandbox, func(store *staging.Store) {
		if err := store.RemoveSandbox(pod.GetId()); err != nil {
			p.counters.CleanupFailed.Add()
			p.podLog(pod).WithError(err).Warn("something of the pod could not be removed")
		}
	})
	return nil
}

// Shutdown comes when the runtime ends in good order.
func (p *Plugin) Shutdown(context.Context) { p.log.Info("the runtime shuts down") }

// budget is the time a handler may take: what the runtime gives, less what its
// answer needs on the way back.
func (p *Plugin) budget(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := p.requestTimeout()
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline))
	}
	return context.WithTimeout(ctx, limit-limit/8)
}
