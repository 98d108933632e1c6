// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"

	"github.com/jackfield/jackfield/internal/deadline"
	"github.com/jackfield/jackfield/internal/diag"
	"github.com/jackfield/jackfield/internal/telemetry"
	nriapply "github.com/jackfield/jackfield/pkg/apply/nri"
	"github.com/jackfield/jackfield/pkg/apply/nri/capability"
	"github.com/jackfield/jackfield/pkg/attachment"
	"github.com/jackfield/jackfield/pkg/edits"
	"github.com/jackfield/jackfield/pkg/hostfs"
	"github.com/jackfield/jackfield/pkg/policy"
	"github.com/jackfield/jackfield/pkg/resolve"
	"github.com/jackfield/jackfield/pkg/staging"
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

// hasNoRequests reports that there is nothing to do for the container. The check runs on a
// worker, because checking a directory for changes can hang. A pod whose annotations request
// nothing is not kept from the node by an unresponsive directory.
func (p *Plugin) hasNoRequests(ctx context.Context, pod *api.PodSandbox, c *api.Container) bool {
	current := p.config.core.Load()
	if current.engine.MayAsk(pod.GetAnnotations()) {
		return false
	}
	if p.config.dirs.Check(current.cfg.DeviceInfo.CNIDir) != nil {
		return current.engine.Hooks() == nil // hooks do not need the directory
	}
	// A third of the time, so that enough is left for resolving.
	nothing, err := deadline.Run(p.workers, p.timeLeft(ctx)/3, func() (nothing bool, err error) {
		defer p.recoverPanic(&err, pod)
		return current.engine.HasNoRequests(pod.GetId(), pod.GetAnnotations(), c.GetEnv(), hasDeviceMetadata(c)), nil
	})
	if isTimeout(err) {
		p.counters.CountTimeout(telemetry.CreateContainer)
		p.containerLog(pod, c).WithError(err).Warn("a host directory is unresponsive: the container, whose pod requests nothing, is created unchecked")
	}
	return nothing || isTimeout(err)
}

// hasDeviceMetadata reports whether the container has a mount of metadata of a resource claim.
func hasDeviceMetadata(c *api.Container) bool {
	return slices.ContainsFunc(c.GetMounts(), func(m *api.Mount) bool { return attachment.IsMetadataMount(m.GetDestination()) })
}

// creation is one container that was given something.
type creation struct {
	pod    *api.PodSandbox
	c      *api.Container
	req    *resolve.Request
	plan   *resolve.Plan
	adjust *api.ContainerAdjustment // what the runtime was answered
	store  *staging.Store           // that has the container's sockets
	begun  time.Time
	// checked is when the last check began whether the container exists; at first it is begun.
	checked time.Time
}

// prepareCreation resolves the container's requests, stages its sockets, and makes the
// adjustment. It runs on a worker. The creation is nil for a container that gets nothing.
func (p *Plugin) prepareCreation(ctx context.Context, pod *api.PodSandbox, c *api.Container) (_ *creation, err error) {
	current, store := p.config.core.Load(), p.state.store.Load()
	p.forgetFailedCreations(store, pod, c)
	req := newRequest(p.runtimeName(), pod, c)
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
	switch {
	case plan.Staging == nil:
	case store == nil:
		return nil, p.storeFault(current.cfg)
	default:
		if err := store.Prepare(*plan.Staging); err != nil {
			return nil, err
		}
	}
	return &creation{pod: pod, c: c, req: req, plan: plan, adjust: adjust, store: store}, nil
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

// recordCreation keeps and reports what the container was given. A container with metadata of claims
// is updated soon: a driver may have changed the metadata before it was watched.
func (p *Plugin) recordCreation(made *creation) {
	var running *runningContainer
	if made.plan.Staging != nil {
		made.req.Have.Mounts = append(made.req.Have.Mounts, made.plan.Set.Mounts...)
		made.req.Have.Devices = append(made.req.Have.Devices, made.plan.Set.Devices...)
		running = &runningContainer{req: made.req}
	}
	p.containers.addCreation(made, running)
	if running != nil && len(p.config.core.Load().engine.MetadataFiles(made.req)) > 0 {
		p.containers.hotplug.markContainerDirty(running)
	}
	p.reportCreated(made.pod, made.c, made.plan)
}

// containerNameLabel is the label in which CRI-O keeps a container's name; other runtimes fill
// the field.
const containerNameLabel = "io.kubernetes.container.name"

// newRequest returns what the runtime reports of a container as a request. c is nil for the
// sandbox itself.
func newRequest(runtime string, pod *api.PodSandbox, c *api.Container) *resolve.Request {
	r := &resolve.Request{
		SandboxID: pod.GetId(), ContainerID: c.GetId(),
		Namespace: pod.GetNamespace(), Pod: pod.GetName(), PodUID: pod.GetUid(), Container: containerName(c),
		RuntimeHandler: pod.GetRuntimeHandler(), Labels: pod.GetLabels(), Annotations: pod.GetAnnotations(), Image: containerImage(runtime, c),
		Args: c.GetArgs(), ContainerAnnotations: c.GetAnnotations(),
		Have: edits.Existing{Env: c.GetEnv()},
	}
	if u := c.GetUser(); u != nil {
		r.User = &resolve.User{UID: u.GetUid(), GID: u.GetGid()}
	}
	if path, ok := userNS(c); ok {
		r.UserNS = &resolve.UserNS{PID: userNSProcess(path, pod)}
	}
	for _, m := range c.GetMounts() {
		r.Have.Mounts = append(r.Have.Mounts, edits.Mount{Destination: m.GetDestination(), Source: m.GetSource(), Type: m.GetType(), Options: m.GetOptions()})
	}
	for _, d := range c.GetLinux().GetDevices() {
		r.Have.Devices = append(r.Have.Devices, edits.Device{Path: d.GetPath(), Type: d.GetType(), Major: d.GetMajor(), Minor: d.GetMinor(), FileMode: fileMode(d)})
	}
	h := c.GetHooks()
	if h == nil {
		return r
	}
	for stage, hooks := range map[edits.Stage][]*api.Hook{
		edits.Prestart: h.GetPrestart(), edits.CreateRuntime: h.GetCreateRuntime(), edits.CreateContainer: h.GetCreateContainer(),
		edits.StartContainer: h.GetStartContainer(), edits.Poststart: h.GetPoststart(), edits.Poststop: h.GetPoststop(),
	} {
		for _, hook := range hooks {
			r.Have.Hooks = append(r.Have.Hooks, edits.Hook{Stage: stage, Path: hook.GetPath(), Args: hook.GetArgs(), Env: hook.GetEnv()})
		}
	}
	return r
}

func containerName(c *api.Container) string {
	if name := c.GetName(); name != "" {
		return name
	}
	return c.GetLabels()[containerNameLabel]
}

// containerImage returns the container's image from the runtime's own annotation of the container, ""
// where it is unknown. containerd overwrites what the pod's author wrote under its key. CRI-O's
// io.kubernetes.cri-o.ImageName is some name of the same content: the one that was pulled last,
// and not the one that the container requested.
func containerImage(runtime string, c *api.Container) string {
	if runtime == "containerd" {
		return c.GetAnnotations()["io.kubernetes.cri.image-name"]
	}
	return ""
}

// userNS returns the path of the container's own user namespace, where it has one.
func userNS(c *api.Container) (path string, ok bool) {
	for _, ns := range c.GetLinux().GetNamespaces() {
		if ns.GetType() == "user" {
			return ns.GetPath(), true
		}
	}
	return "", false
}

// userNSProcess returns a process in a user namespace: the one that the path belongs to, or else
// the sandbox's; 0 for none.
func userNSProcess(path string, pod *api.PodSandbox) int {
	if pid := hostfs.NamespaceProcess(path); pid != 0 {
		return pid
	}
	return int(pod.GetPid() & (1<<31 - 1))
}

func fileMode(d *api.LinuxDevice) *os.FileMode {
	if m := d.GetFileMode(); m != nil {
		mode := os.FileMode(m.GetValue())
		return &mode
	}
	return nil
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
		return policy.Usage{}, fmt.Errorf("found %s, want %s with counts from 0 to %d: %w", diag.Quote(text, 100), strings.ReplaceAll(usageFormat, "%d", "N"), maxUsage, errdefs.ErrInvalidArgument)
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
		p.containers.ledger.Note(c.GetPodSandboxId(), containerName(c), c.GetId(), u)
	}
}
