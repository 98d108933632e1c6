// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"

	"github.com/jackfield/jackfield/internal/base/deadline"
	nriapply "github.com/jackfield/jackfield/internal/deliver/nri"
	"github.com/jackfield/jackfield/internal/deliver/nri/capability"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/engine"
	"github.com/jackfield/jackfield/internal/report/telemetry"
)

// creation is a container that receives an injection. Each step of the creator fills in the next fields.
type creation struct {
	pod *api.PodSandbox
	c   *api.Container

	infoFileChanges uint64 // hotplug.infoFileChanges before the requests were resolved
	req             *engine.Request
	can             capability.Capabilities
	plan            *engine.Plan
	adjustment      *api.ContainerAdjustment // the response to the runtime
}

// creator performs the steps of Plugin.CreateContainer. All steps except the last can hang on a file system of
// the host, so they run on a worker while the handler keeps the runtime's deadline. The state on the host is
// created last before the response, and undone if the runtime received another response meanwhile.
type creator struct {
	*daemon
	calls      *runtimeCalls
	runtime    *runtimeLink
	config     *configuration
	containers *containerTable
	ledger     *engine.Ledger
	state      *stateDir
	hotplug    *hotplug
	restored   *restoredContainers
	outcomes   *outcomes
}

// errNoInjection ends the creation of a container that receives nothing.
var errNoInjection = errors.New("no injection")

// precheck refuses a container that its runtime cannot serve, and returns errNoInjection for a container
// without requests.
func (c *creator) precheck(ctx context.Context, n *creation) error {
	current := c.config.core.Load()
	if err := c.checkRuntime(n, current); err != nil {
		return err
	}
	if !current.engine.MayRequest(n.pod.GetAnnotations()) && c.hasNoFiles(ctx, n, current) {
		return errNoInjection
	}
	return nil
}

// checkRuntime refuses a container that requests something from a runtime that cannot deliver it. dockerd
// passes annotations and labels with the container and not with its pod.
func (c *creator) checkRuntime(n *creation, current *core) error {
	why := c.runtime.info.Load().Limitation()
	if why == "" {
		return nil
	}
	for _, requests := range []map[string]string{n.pod.GetAnnotations(), n.c.GetAnnotations(), n.c.GetLabels()} {
		if current.engine.MayRequest(requests) {
			return c.unsupportedRuntime(why, "the container's annotations or labels")
		}
	}
	return nil
}

func (c *creator) unsupportedRuntime(why, request string) error {
	return errdefs.ErrNotImplemented.WithMessage(fmt.Sprintf("%s: runtime %q is not supported: %s; "+
		"use containerd or CRI-O, or Podman with jackfield-hook, or create the container without the request",
		request, c.runtime.name(), why))
}

// hasNoFiles reports that no file on the host requests anything for a container whose pod requests nothing.
// The check runs on a worker, because checking a directory for changes can hang. An unresponsive directory
// does not keep such a pod from the node.
func (c *creator) hasNoFiles(ctx context.Context, n *creation, current *core) bool {
	if c.config.dirs.Check(current.cfg.DeviceInfo.CNIDir) != nil {
		return len(current.cfg.Hooks.Dirs) == 0 // hooks do not need the directory
	}
	// A third of the time, so that enough is left for resolving.
	nothing, err := deadline.Run(c.calls.workers, c.calls.timeLeft(ctx)/3, func() (nothing bool, err error) {
		defer c.recoverPanic(&err, n.pod)
		return current.engine.HasNoRequests(newRequest(c.runtime.name(), n.pod, n.c)), nil
	})
	if isTimeout(err) {
		c.counters.CountTimeout(telemetry.CreateContainer)
		c.containerLog(n.pod, n.c).WithError(err).
			Warn("a host directory is unresponsive: the container, whose pod requests nothing, is created unchecked")
	}
	return nothing || isTimeout(err)
}

// resolve resolves the container's requests to a plan. It returns errNoInjection if there is nothing to
// inject.
func (c *creator) resolve(ctx context.Context, n *creation) error {
	current := c.config.core.Load()
	n.infoFileChanges = c.hotplug.infoFileChanges.Load()
	if c.restored.active.Load() {
		c.containers.addSandbox(n.pod, true)
	}
	c.forgetFailedCreations(n)
	n.req = newRequest(c.runtime.name(), n.pod, n.c)
	n.can = c.runtime.capabilitiesFor(n.req)
	n.req.InheritedMemlock = func() *edit.Rlimit { return inheritedMemlock(c.host, n.pod) }
	n.req.LimitMemlock = n.can.LimitMemlock()
	n.req.CanDeliver = func(set *edit.Set, request string) error { return capability.Check(set, n.can, request) }
	plan, err := current.engine.Resolve(ctx, n.req)
	if err != nil {
		return err
	}
	if plan == nil {
		return errNoInjection
	}
	if why := c.runtime.info.Load().Limitation(); why != "" && len(plan.Items) > 0 {
		c.containers.removeContainer(n.req.SandboxID, n.req.ContainerID)
		return c.unsupportedRuntime(why, plan.Items[0].Request)
	}
	n.plan = plan
	return nil
}

// forgetFailedCreations forgets earlier attempts to create a container of this name. Other containers of the
// pod that never started no longer count for its limits.
//
// A runtime does not always report that a creation failed after its NRI call: CRI-O does not when the OCI
// runtime fails. The kubelet starts each container of a pod before it creates the next one, so a container
// that has not started by then never will.
func (c *creator) forgetFailedCreations(n *creation) {
	for _, other := range c.containers.listPending(n.pod.GetId(), n.c.GetId()) {
		if containerName(other.c) != containerName(n.c) {
			c.ledger.Drop(n.pod.GetId(), other.c.GetId())
			continue
		}
		c.containerLog(other.pod, other.c).WithField("next", n.c.GetId()).
			Info("the container never started: removed its state")
		c.containers.removeContainer(n.pod.GetId(), other.c.GetId())
		c.state.removeContainer(other.pod, other.c)
	}
	c.restored.forgetPredecessor(n.pod, n.c)
}

// adjust turns the plan into the adjustment.
func (c *creator) adjust(n *creation) error {
	n.plan.DropGroups(n.can.UnneededGroup)
	adjustment, err := nriapply.Adjustment(&n.plan.Set, n.can, n.req.Have.Devices...)
	if err != nil {
		c.forget(n)
		return err
	}
	n.adjustment = markUsage(adjustment, n.plan.Usage)
	return nil
}

// stage creates the container's state on the host, unless ctx has ended.
func (c *creator) stage(ctx context.Context, n *creation) error {
	err := ctx.Err()
	if s := n.plan.Staging; s != nil && err == nil {
		// The kubelet creates a container again only after its predecessor has ended.
		s.Successor = len(s.SocketDirs) > 0 && c.containers.isSuccessor(n.pod.GetId(), containerName(n.c))
		err = c.state.store.Load().Prepare(*s)
	}
	if err != nil {
		c.forget(n)
	}
	return err
}

// removeLateState removes the state of a container that a worker prepared after the runtime's deadline, when the
// runtime had already received an error.
func (c *creator) removeLateState(n *creation) {
	if n.plan.Staging != nil {
		c.state.removeContainer(n.pod, n.c)
	}
	c.forget(n)
}

// forget drops a container that is not created. If the removal of its pod was reported meanwhile, it removes
// the pod's state again.
func (c *creator) forget(n *creation) {
	c.containers.removeContainer(n.pod.GetId(), n.c.GetId())
	if !c.containers.hasSandbox(n.pod.GetId()) {
		c.state.removeIdleSandbox(n.pod)
	}
}

// record reports the outcome and adds the container to the table and to hotplug. The container is updated soon
// if device-info files changed meanwhile, or if it has metadata of claims, which a driver may have changed
// before hotplug watched it.
func (c *creator) record(n *creation) {
	c.containers.addCreation(n, c.outcomes.reportCreated(n.pod, n.c, n.plan))
	if n.plan.Staging == nil {
		return
	}
	have, set := &n.req.Have, &n.plan.Set
	have.Mounts = slices.DeleteFunc(have.Mounts, func(h edit.Mount) bool {
		return slices.ContainsFunc(set.Mounts, func(m edit.Mount) bool {
			return m.Replaces != "" && m.Replaces == h.Destination
		})
	})
	have.Mounts = append(have.Mounts, set.Mounts...)
	have.Devices = append(have.Devices, set.Devices...)
	running := c.hotplug.add(n.pod, n.c, n.req)
	if n.req.HasDeviceMetadata() || n.infoFileChanges != c.hotplug.infoFileChanges.Load() {
		c.hotplug.markContainerDirty(running)
	}
}
