// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"errors"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/jackfield/jackfield/internal/base/deadline"
	"github.com/jackfield/jackfield/internal/report/telemetry"
)

// The handlers of the runtime's calls. One lock in the runtime serializes all plugin calls on the node, so each
// handler must return within the runtime's deadline, and work that can hang runs on a worker.

// crio is the name by which CRI-O registers plugins.
const crio = "cri-o"

// Configure is the first call after registration. A runtime that started the plugin itself hands over its
// drop-in configuration, which then replaces the file.
func (p *Plugin) Configure(_ context.Context, cfg, runtime, version string) (api.EventMask, error) {
	defer p.calls.measure(telemetry.Configure)()
	log := p.log.WithField("runtime", runtime+" "+version)
	if cfg != "" && !p.opts.ConfigGiven {
		if err := p.config.applyHandedOver([]byte(cfg)); err != nil {
			log.WithError(err).Error("rejected the configuration that the runtime handed over")
			return 0, err
		}
	}
	if p.config.core.Load() == nil {
		if err := p.config.start(); err != nil {
			log.WithError(err).Error("cannot use the configuration")
			return 0, err
		}
	}
	nriVersion := p.runtime.recordConfigure(runtime, version)
	if runtime == crio && len(p.config.core.Load().cfg.Hooks.Dirs) > 0 {
		p.log.Warn("hooks.dirs is configured, and CRI-O reads hooks.d directories itself (hooks_dir in crio.conf): " +
			"name no directory in both")
	}
	log.WithField("nri", nriVersion).Info("registered with the runtime")
	if why := p.runtime.info.Load().Limitation(); why != "" {
		log.Errorf("%s is not supported: %s", runtime, why)
	}
	can := p.runtime.capabilities.Load()
	if p.opts.Inherited && !can.SyncPreinstalled {
		p.runtime.markRegistered()
		p.restored.start()
	}
	// All of these exist since NRI 0.2: a runtime refuses the registration of a plugin that requests an unknown
	// event.
	var mask api.EventMask
	mask.Set(api.Event_RUN_POD_SANDBOX, api.Event_CREATE_CONTAINER, api.Event_START_CONTAINER, api.Event_STOP_CONTAINER,
		api.Event_REMOVE_CONTAINER, api.Event_REMOVE_POD_SANDBOX)
	// A runtime whose NRI is older than the failure policy creates a container without a plugin that ended during
	// CreateContainer, but not without a validator, and counts a validator that ended as present when it checks
	// for required plugins. There the plugin subscribes to the validation only to be present.
	guardsCreations := can.Validate && !can.FailRequest
	if p.validator.isOn(nriVersion) || guardsCreations {
		mask.Set(api.Event_VALIDATE_CONTAINER_ADJUSTMENT)
	}
	return mask, nil
}

// Synchronize receives the living pods and containers. The state of all others is removed.
func (p *Plugin) Synchronize(
	ctx context.Context, pods []*api.PodSandbox, containers []*api.Container) ([]*api.ContainerUpdate, error) {
	defer p.calls.measure(telemetry.Synchronize)()
	asOf := time.Now()
	p.restored.active.Store(false)
	p.containers.synchronize(pods, containers)
	restoreUsage(p.ledger, containers, p.log)
	p.runOnState(ctx, telemetry.Synchronize, func() {
		store := p.state.store.Load()
		err := store.Retain(asOf, p.containers.hasSandbox, p.containers.hasContainer)
		p.reportRemoval(p.log, "containers that are gone", err)
		p.hotplug.synchronize(p.runtime.name(), store)
	})
	p.log.WithField("pods", len(pods)).WithField("containers", len(containers)).Info("synchronized")
	p.ports.sandboxesChanged()
	p.missed.wake.send()
	p.runtime.markRegistered()
	return nil, nil
}

// RunPodSandbox is called after CNI ADD.
func (p *Plugin) RunPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	defer p.calls.measure(telemetry.RunPodSandbox)()
	p.containers.addSandbox(pod, false)
	p.ports.sandboxesChanged()
	return nil
}

// CreateContainer injects the requests of the container that the policy grants.
func (p *Plugin) CreateContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) (
	_ *api.ContainerAdjustment, _ []*api.ContainerUpdate, err error) {
	defer p.calls.measure(telemetry.CreateContainer)()
	defer p.recoverPanic(&err, pod)
	p.counters.Containers.Add(1)
	n := &creation{pod: pod, c: c}
	if err = p.creator.precheck(ctx, n); err == nil {
		err = p.calls.runOrUndo(ctx, telemetry.CreateContainer, pod, func(ctx context.Context) error {
			if err := p.creator.resolve(ctx, n); err != nil {
				return err
			}
			if err := p.creator.adjust(n); err != nil {
				return err
			}
			return p.creator.stage(ctx, n)
		}, func() { p.creator.removeLateState(n) })
	}
	switch {
	case err == nil:
		p.creator.record(n)
		return n.adjustment, nil, nil
	case errors.Is(err, errNoInjection):
		p.counters.Untouched.Add(1)
		return nil, nil, nil
	case isTimeout(err):
		p.counters.TimedOut.Add(1)
		err = p.calls.explainTimeout(err)
	}
	p.outcomes.reportRefused(pod, c, err)
	return nil, nil, newRefusal(pod, c, err)
}

// ValidateContainerAdjustment refuses the devices and mounts that other plugins inject and that the policy does
// not grant the container.
func (p *Plugin) ValidateContainerAdjustment(ctx context.Context, req *api.ValidateContainerAdjustmentRequest) error {
	v := p.validator.newValidation(req)
	if v == nil {
		return nil
	}
	defer p.calls.measure(telemetry.ValidateContainerAdjustment)()
	err := p.calls.runOnWorker(ctx, telemetry.ValidateContainerAdjustment, req.GetPod(), v.checkAdjustment)
	if err != nil {
		return newRefusal(req.GetPod(), req.GetContainer(), p.calls.explainTimeout(err))
	}
	return nil
}

// StartContainer is called after a container was created, when it starts.
func (p *Plugin) StartContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	defer p.calls.measure(telemetry.StartContainer)()
	p.containers.recordStart(c.GetId())
	return nil
}

// StopContainer is called when a container was stopped or has ended by itself.
func (p *Plugin) StopContainer(
	ctx context.Context, pod *api.PodSandbox, c *api.Container) ([]*api.ContainerUpdate, error) {
	defer p.calls.measure(telemetry.StopContainer)()
	if c.GetState() == api.ContainerState_CONTAINER_STOPPED {
		p.containers.removeContainer(pod.GetId(), c.GetId())
		p.runOnState(ctx, telemetry.StopContainer, func() { p.state.removeContainer(pod, c) })
	}
	return nil, nil
}

// RemoveContainer removes the state of a container.
func (p *Plugin) RemoveContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) error {
	defer p.calls.measure(telemetry.RemoveContainer)()
	p.containers.removeContainer(pod.GetId(), c.GetId())
	p.runOnState(ctx, telemetry.RemoveContainer, func() {
		p.state.removeContainer(pod, c)
		if p.containers.isPreexisting(pod.GetId()) {
			p.state.removeIdleSandbox(pod) // its removal may not be reported
		}
	})
	return nil
}

// RemovePodSandbox removes the state of the pod's containers and sockets.
func (p *Plugin) RemovePodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	defer p.calls.measure(telemetry.RemovePodSandbox)()
	p.containers.removeSandbox(pod.GetId())
	p.ports.sandboxesChanged()
	p.removed.add(pod.GetId())
	p.runOnState(ctx, telemetry.RemovePodSandbox, func() {
		p.reportRemoval(p.podLog(pod), "the pod", p.state.store.Load().RemoveSandbox(pod.GetId()))
	})
	return nil
}

// Shutdown is called when the runtime shuts down cleanly.
func (p *Plugin) Shutdown(context.Context) { p.log.Info("the runtime shuts down") }

// runOnState runs f, which removes something from the state directory, within the runtime's deadline or
// beyond it.
func (p *Plugin) runOnState(ctx context.Context, h telemetry.Handler, f func()) {
	err := p.calls.runOnWorker(ctx, h, nil, func() error { f(); return nil })
	if err == nil {
		return
	}
	p.log.WithError(err).Warnf("%s was answered before its work was done", h)
	if errors.Is(err, deadline.ErrBusy) {
		p.state.postpone(f)
	}
}
