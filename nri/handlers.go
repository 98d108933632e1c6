// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"

	nriapply "github.com/jackfield/jackfield/pkg/apply/nri"
	"github.com/jackfield/jackfield/pkg/resolve"
)

// events are those the plugin subscribes to. All of them are as old as NRI 0.2:
// a runtime refuses the registration of a plugin that asks for one it does not
// know.
func events() api.EventMask {
	var mask api.EventMask
	mask.Set(api.Event_RUN_POD_SANDBOX, api.Event_CREATE_CONTAINER, api.Event_STOP_CONTAINER,
		api.Event_REMOVE_CONTAINER, api.Event_REMOVE_POD_SANDBOX)
	return mask
}

// Configure is the first call after registration. A runtime that started the
// plugin itself hands over its drop-in configuration, which then takes the place
// of the file.
func (p *Plugin) Configure(_ context.Context, cfg, runtime, version string) (api.EventMask, error) {
	log := p.log.WithField("runtime", runtime+" "+version)
	if cfg != "" && !p.opts.ConfigGiven {
		if err := p.configure([]byte(cfg)); err != nil {
			log.WithError(err).Error("configuration handed over by the runtime is refused")
			return 0, err
		}
	}
	nriVersion := p.runtimeNRIVersion(runtime, version)
	p.can.Store(&capabilities{nriapply.CapabilitiesOf(nriVersion)})
	p.noteTimeout()
	p.warnOfTwoReaders(runtime)
	p.configured()
	log.WithField("nri", nriVersion).Info("registered with the runtime")
	return events(), nil
}

// Synchronize tells what lives. Whatever was kept for anything else goes.
func (p *Plugin) Synchronize(_ context.Context, pods []*api.PodSandbox, containers []*api.Container) ([]*api.ContainerUpdate, error) {
	sandboxes := make(map[string]bool, len(pods))
	for _, pod := range pods {
		sandboxes[pod.GetId()] = true
	}
	alive := make(map[string]bool, len(containers))
	for _, c := range containers {
		alive[c.GetId()] = true
	}
	p.noteUsage(sandboxes, containers)
	err := p.core.Load().store.Retain(func(id string) bool { return sandboxes[id] }, func(id string) bool { return alive[id] })
	if err != nil {
		p.log.WithError(err).Warn("something of containers that are gone could not be removed")
	}
	p.log.WithField("pods", len(pods)).WithField("containers", len(containers)).Info("synchronized")
	return nil, nil
}

// warmAfter is how long after a sandbox its device-info files are read, so that
// they are settled, and still before the kubelet has the first container created.
const warmAfter = 25 * time.Millisecond

// RunPodSandbox comes after CNI ADD: what the pod's networks are is on the node.
// It is read ahead, after the runtime has its answer.
func (p *Plugin) RunPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	time.AfterFunc(warmAfter, func() {
		p.workers.do(func() {
			defer func() {
				if r := recover(); r != nil {
					p.podLog(pod).WithField("panic", r).Error(string(debug.Stack()))
				}
			}()
			p.core.Load().engine.Warm(request(pod, nil))
		})
	})
	return nil
}

// CreateContainer is where a container gets what it was granted.
func (p *Plugin) CreateContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	p.counters.Containers.Add()
	if p.core.Load().engine.Nothing(pod.GetId(), pod.GetAnnotations(), c.GetEnv()) {
		p.counters.Untouched.Add()
		return nil, nil, nil
	}
	ctx, cancel := p.budget(ctx)
	defer cancel()
	type result struct {
		adjust *api.ContainerAdjustment
		err    error
	}
	// A file system that hangs holds the worker, never the runtime.
	done := make(chan result, 1)
	accepted := p.workers.do(func() {
		defer func() {
			if r := recover(); r != nil {
				p.podLog(pod).WithField("panic", r).Error(string(debug.Stack()))
				done <- result{err: fmt.Errorf("jackfield: internal error, see the plugin's log: %v: %w", r, errdefs.ErrInternal)}
			}
		}()
		adjust, err := p.createContainer(ctx, pod, c)
		done <- result{adjust, err}
	})
	if !accepted {
		p.counters.TimedOut.Add()
		return nil, nil, fmt.Errorf("jackfield: %d earlier requests still hang on this host's file systems: %w", maxHanging, errdefs.ErrUnavailable)
	}
	select {
	case r := <-done:
		return r.adjust, nil, r.err
	case <-ctx.Done():
		p.counters.TimedOut.Add()
		err := fmt.Errorf("jackfield: container %q: given up before the runtime's deadline, a file system or socket of this host does not answer: %w",
			pod.GetNamespace()+"/"+pod.GetName()+"/"+c.GetName(), errdefs.ErrUnavailable)
		p.containerLog(pod, c).Error(err)
		return nil, nil, err
	}
}

func (p *Plugin) createContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, error) {
	core := p.core.Load()
	plan, err := core.engine.Resolve(ctx, request(pod, c))
	if err != nil {
		p.containerLog(pod, c).WithError(err).Error("container refused")
		p.countErrors(err)
		return nil, fmt.Errorf("jackfield: %w", err)
	}
	if plan == nil {
		p.counters.Untouched.Add()
		return nil, nil
	}
	can := p.can.Load().Capabilities
	can.UserNS = hasUserNS(c)
	adjust, err := nriapply.Adjustment(&plan.Set, can)
	if err != nil {
		p.counters.Failed.Add()
		p.containerLog(pod, c).WithError(err).Error("container refused")
		return nil, fmt.Errorf("jackfield: %w", &resolve.Error{Container: pod.GetNamespace() + "/" + pod.GetName() + "/" + c.GetName(), Errs: []error{err}})
	}
	if err := ctx.Err(); err != nil {
		// The answer would come too late: nothing is made that nobody uses.
		return nil, err
	}
	if plan.Staging != nil {
		if err := core.store.Prepare(*plan.Staging); err != nil {
			p.counters.Failed.Add()
			p.containerLog(pod, c).WithError(err).Error("container refused")
			return nil, fmt.Errorf("jackfield: %w", err)
		}
	}
	markUsage(adjust, plan.Usage)
	p.report(pod, c, plan)
	return adjust, nil
}

// StopContainer comes when a container was stopped, or ended by itself.
func (p *Plugin) StopContainer(_ context.Context, pod *api.PodSandbox, c *api.Container) ([]*api.ContainerUpdate, error) {
	if c.GetState() == api.ContainerState_CONTAINER_STOPPED {
		p.forget(pod, c)
	}
	return nil, nil
}

// RemoveContainer removes what was kept for the container.
func (p *Plugin) RemoveContainer(_ context.Context, pod *api.PodSandbox, c *api.Container) error {
	p.forget(pod, c)
	return nil
}

func (p *Plugin) forget(pod *api.PodSandbox, c *api.Container) {
	if err := p.core.Load().store.RemoveContainer(pod.GetId(), c.GetId()); err != nil {
		p.containerLog(pod, c).WithError(err).Warn("something of the container could not be removed")
	}
}

// RemovePodSandbox removes what was kept for the pod's containers and sockets.
func (p *Plugin) RemovePodSandbox(_ context.Context, pod *api.PodSandbox) error {
	p.ledger.Forget(pod.GetId())
	if err := p.core.Load().store.RemoveSandbox(pod.GetId()); err != nil {
		p.podLog(pod).WithError(err).Warn("something of the pod could not be removed")
	}
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
