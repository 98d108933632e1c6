// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"
	"github.com/sirupsen/logrus"

	"github.com/jackfield/jackfield/internal/base/deadline"
	"github.com/jackfield/jackfield/internal/deliver/nri/capability"
	"github.com/jackfield/jackfield/internal/deliver/staging"
	"github.com/jackfield/jackfield/internal/engine"
	"github.com/jackfield/jackfield/internal/report/telemetry"
)

// timeCall counts a call of the runtime and measures its time until end. Every handler starts with
//
//	defer p.timeCall(telemetry.CreateContainer)()
func (p *Plugin) timeCall(h telemetry.Handler) (end func()) {
	began := time.Now()
	calls := &p.runtime.calls
	calls.running.Add(1)
	return func() {
		p.counters.Observe(h, time.Since(began))
		calls.finished.Add(1)
		calls.running.Add(-1)
	}
}

// Configure is the first call after registration. A runtime that started the plugin itself
// hands over its drop-in configuration, which then replaces the file.
func (p *Plugin) Configure(_ context.Context, cfg, runtime, version string) (api.EventMask, error) {
	defer p.timeCall(telemetry.Configure)()
	log := p.log.WithField("runtime", runtime+" "+version)
	if cfg != "" && !p.opts.ConfigGiven {
		if err := p.applyRuntimeConfig([]byte(cfg)); err != nil {
			log.WithError(err).Error("rejected the configuration that the runtime handed over")
			return 0, err
		}
	}
	if p.config.core.Load() == nil {
		if err := p.applyFirstConfig(); err != nil {
			log.WithError(err).Error("cannot use the configuration")
			return 0, err
		}
	}
	nriVersion := p.runtime.recordConfigure(runtime, version)
	if runtime == crio && len(p.config.core.Load().cfg.Hooks.Dirs) > 0 {
		p.log.Warn("hooks.dirs is configured, and CRI-O reads hooks.d directories itself (hooks_dir in crio.conf): name no directory in both")
	}
	log.WithField("nri", nriVersion).Info("registered with the runtime")
	if why := p.runtime.info.Load().Limitation(); why != "" {
		log.Errorf("%s is not supported: %s", runtime, why)
	}
	if p.opts.Inherited && !p.runtime.capabilities.Load().SyncPreinstalled {
		p.registerWithoutSynchronize()
	}
	// All of these are as old as NRI 0.2: a runtime refuses the registration of a plugin that asks for an
	// event it does not know.
	var mask api.EventMask
	mask.Set(api.Event_RUN_POD_SANDBOX, api.Event_CREATE_CONTAINER, api.Event_START_CONTAINER, api.Event_STOP_CONTAINER,
		api.Event_REMOVE_CONTAINER, api.Event_REMOVE_POD_SANDBOX)
	if p.validatesOthers(nriVersion) || p.guardsCreations() {
		mask.Set(api.Event_VALIDATE_CONTAINER_ADJUSTMENT)
	}
	return mask, nil
}

// Synchronize reports the pods and containers that live. What is kept for others is removed.
func (p *Plugin) Synchronize(ctx context.Context, pods []*api.PodSandbox, containers []*api.Container) ([]*api.ContainerUpdate, error) {
	defer p.timeCall(telemetry.Synchronize)()
	asOf := time.Now()
	p.runtime.unsynchronized.Store(false)
	p.containers.synchronize(pods, containers)
	p.restoreUsage(containers)
	p.runInStore(ctx, telemetry.Synchronize, func(store *staging.Store) { p.retainLiving(store, asOf) })
	p.log.WithField("pods", len(pods)).WithField("containers", len(containers)).Info("synchronized")
	p.ports.sandboxesChanged()
	p.containers.wakeMissedCheck()
	p.counters.Connections.Add(1)
	p.runtime.registered.Store(true)
	return nil, nil
}

// RunPodSandbox comes after CNI ADD.
func (p *Plugin) RunPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	defer p.timeCall(telemetry.RunPodSandbox)()
	p.containers.addSandbox(pod)
	p.ports.sandboxesChanged()
	return nil
}

// StartContainer reports that a container was created and starts.
func (p *Plugin) StartContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	defer p.timeCall(telemetry.StartContainer)()
	if made := p.containers.recordStart(c.GetId()); made != nil && made.plan.Usage != nil {
		// It counts again: forgetFailedCreations may have dropped it.
		p.containers.ledger.RecordUsage(made.pod.GetId(), containerName(made.c), made.c.GetId(), *made.plan.Usage)
	}
	return nil
}

// StopContainer comes when a container was stopped or has ended by itself.
func (p *Plugin) StopContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) ([]*api.ContainerUpdate, error) {
	defer p.timeCall(telemetry.StopContainer)()
	if c.GetState() == api.ContainerState_CONTAINER_STOPPED {
		p.runInStore(ctx, telemetry.StopContainer, p.forgetContainer(pod, c))
	}
	return nil, nil
}

// RemoveContainer removes what is kept for the container.
func (p *Plugin) RemoveContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) error {
	defer p.timeCall(telemetry.RemoveContainer)()
	remove := p.forgetContainer(pod, c)
	p.runInStore(ctx, telemetry.RemoveContainer, func(store *staging.Store) {
		remove(store)
		if !p.containers.isPreexisting(pod.GetId()) {
			return
		}
		// With the last container the pod's socket directories are removed. A container that
		// is created later has them created again.
		p.reportRemoval(p.podLog(pod), "the pod", store.RemoveIdleSandbox(pod.GetId()))
	})
	return nil
}

// forgetContainer drops what is known of a container. It returns what removes the container's
// state on the host, which can hang.
func (p *Plugin) forgetContainer(pod *api.PodSandbox, c *api.Container) (remove func(*staging.Store)) {
	state := &p.containers
	state.removeContainer(c.GetId())
	state.hotplug.wakeUp()
	state.ledger.Drop(pod.GetId(), c.GetId())
	return func(store *staging.Store) {
		p.reportRemoval(p.containerLog(pod, c), "the container", store.RemoveContainer(pod.GetId(), c.GetId()))
	}
}

// reportRemoval counts and logs a removal that left something behind.
func (p *Plugin) reportRemoval(log *logrus.Entry, what string, err error) {
	if err != nil {
		p.counters.CleanupFailed.Add(1)
		log.WithError(err).Warn("cannot remove all state of " + what)
	}
}

// RemovePodSandbox removes what is kept for the pod's containers and sockets.
func (p *Plugin) RemovePodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	defer p.timeCall(telemetry.RemovePodSandbox)()
	state := &p.containers
	state.ledger.Forget(pod.GetId())
	state.removeSandbox(pod.GetId())
	state.hotplug.wakeUp()
	p.ports.sandboxesChanged()
	state.removed.add(pod.GetId())
	p.runInStore(ctx, telemetry.RemovePodSandbox, func(store *staging.Store) {
		p.reportRemoval(p.podLog(pod), "the pod", store.RemoveSandbox(pod.GetId()))
	})
	return nil
}

// Shutdown comes when the runtime shuts down in good order.
func (p *Plugin) Shutdown(context.Context) { p.log.Info("the runtime shuts down") }

// capabilitiesFor returns what the runtime can apply to a container.
func (p *Plugin) capabilitiesFor(req *engine.Request) capability.Capabilities {
	can := *p.runtime.capabilities.Load()
	can.UserNS = req.UserNS != nil
	if req.User != nil {
		can.UID = &req.User.UID
	}
	return can
}

// timeLeft returns the time that the runtime gives for the call of ctx.
func (p *Plugin) timeLeft(ctx context.Context) time.Duration {
	limit := p.requestTimeout()
	if until, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(until))
	}
	return limit
}

// runOnWorker runs f, which can hang, on a worker, and waits for it until the runtime's deadline
// is near: then the error is [deadline.ErrTimeout], and f goes on by itself.
func (p *Plugin) runOnWorker(ctx context.Context, h telemetry.Handler, pod *api.PodSandbox, f func() error) error {
	_, err := runOrHandOver(ctx, p, h, pod, func(context.Context) (struct{}, error) { return struct{}{}, f() }, func(struct{}) {})
	return err
}

// runOrHandOver is runOnWorker for work with a result: either the caller gets it, or, after a
// timeout, late does, on the worker.
func runOrHandOver[T any](ctx context.Context, p *Plugin, h telemetry.Handler, pod *api.PodSandbox, f func(context.Context) (T, error), late func(T)) (T, error) {
	limit := p.timeLeft(ctx)
	limit -= limit / 8 // the answer has to arrive in time
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	result, err := deadline.RunOrHandOver(p.workers, limit, func() (result T, err error) {
		defer p.recoverPanic(&err, pod)
		return f(ctx)
	}, func(result T, err error) {
		defer p.recoverPanic(&err, pod)
		late(result)
	})
	// A refusal that comes in the last moment is still the reason.
	if err != nil && ctx.Err() != nil && isTransient(err) {
		err = deadline.ErrTimeout
	}
	if isTimeout(err) {
		p.counters.CountTimeout(h)
	}
	return result, err
}

// isTimeout reports whether runOnWorker did not wait for the end of the work.
func isTimeout(err error) bool {
	return errors.Is(err, deadline.ErrTimeout) || errors.Is(err, deadline.ErrBusy)
}

// explainTimeout returns an error of runOnWorker as the runtime reports it in an event of the pod.
func (p *Plugin) explainTimeout(err error) error {
	switch {
	case errors.Is(err, deadline.ErrBusy):
		return errdefs.ErrUnavailable.WithMessage(fmt.Sprintf("all %d workers are blocked on host file systems (run \"jackfield doctor\")", maxWorkers))
	case errors.Is(err, deadline.ErrTimeout):
		which := ""
		if faults := p.config.dirs.Faults(); len(faults) > 0 {
			which = " (" + strings.Join(faults, "; ") + ")"
		}
		return errdefs.ErrUnavailable.WithMessage("given up before the runtime's deadline: a file system or socket of this host is unresponsive" + which)
	}
	return err
}

// recoverPanic is a deferred call that makes a panic the error of its function. It counts the
// panic and logs it. pod is nil for work of no single pod.
func (p *Plugin) recoverPanic(err *error, pod *api.PodSandbox) {
	if r := recover(); r != nil {
		p.counters.Panics.Add(1)
		p.podLog(pod).WithField("panic", r).Error(string(debug.Stack()))
		*err = errdefs.ErrInternal.WithMessage(fmt.Sprintf("internal error, see the plugin's log: %v", r))
	}
}

func (p *Plugin) podLog(pod *api.PodSandbox) *logrus.Entry {
	if pod == nil {
		return p.log
	}
	return p.log.WithFields(logrus.Fields{"pod": pod.GetNamespace() + "/" + pod.GetName(), "sandbox": pod.GetId()})
}

func (p *Plugin) containerLog(pod *api.PodSandbox, c *api.Container) *logrus.Entry {
	return p.podLog(pod).WithFields(logrus.Fields{"container": containerName(c), "containerID": c.GetId()})
}
