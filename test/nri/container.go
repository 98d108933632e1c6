// SPDX-License-Identifier: Apache-2.0

package nritest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"

	"github.com/containerd/nri/pkg/api"
	nrigen "github.com/containerd/nri/pkg/runtime-tools/generate"
	rspec "github.com/opencontainers/runtime-spec/specs-go"
	ocigen "github.com/opencontainers/runtime-tools/generate"
	"google.golang.org/protobuf/proto"
)

// Created is a container after the plugins have adjusted it.
type Created struct {
	// Container is what the runtime reported to the plugins.
	Container *api.Container
	// Adjust is the collected adjustment of all plugins, as the runtime gets it.
	Adjust *api.ContainerAdjustment
	// Before and Spec are the OCI spec without and with it.
	Before, Spec *rspec.Spec
}

// NewID returns a random identifier in the form of pod and container IDs.
func NewID() string {
	var b [32]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// NewPod returns a pod as containerd describes one to plugins, with a new ID and
// a network namespace.
func NewPod(namespace, name string, annotations map[string]string) *api.PodSandbox {
	id := NewID()
	return &api.PodSandbox{
		Id: id, Name: name, Namespace: namespace, Uid: NewID()[:32],
		Labels: map[string]string{
			"io.kubernetes.pod.name": name, "io.kubernetes.pod.namespace": namespace},
		Annotations:    annotations,
		RuntimeHandler: "runc",
		Linux: &api.LinuxPodSandbox{
			CgroupParent: "/kubepods/" + id[:12],
			Namespaces:   []*api.LinuxNamespace{{Type: "network", Path: "/var/run/netns/cni-" + id[:8]}},
		},
	}
}

// RunPodSandbox reports a new pod to the plugins, and keeps it unless one returns an error.
func (r *Runtime) RunPodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	a, err := r.running()
	if err != nil {
		return err
	}
	ctx, cancel := r.requestContext(ctx)
	defer cancel()
	if err := a.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Pod: pod}); err != nil {
		return err
	}
	r.AddPod(pod)
	return nil
}

// StopPodSandbox reports to the plugins that a pod has stopped.
func (r *Runtime) StopPodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	a, err := r.running()
	if err != nil {
		return err
	}
	ctx, cancel := r.requestContext(ctx)
	defer cancel()
	return a.StopPodSandbox(ctx, &api.StopPodSandboxRequest{Pod: pod})
}

// RemovePodSandbox reports to the plugins that a pod is removed, and forgets it.
func (r *Runtime) RemovePodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	a, err := r.running()
	if err != nil {
		return err
	}
	ctx, cancel := r.requestContext(ctx)
	defer cancel()
	if err := a.RemovePodSandbox(ctx, &api.RemovePodSandboxRequest{Pod: pod}); err != nil {
		return err
	}
	r.Forget(pod.GetId())
	return nil
}

// CreateContainer creates a container of a pod. The name of ctr is required; an empty ID is replaced by
// a new one. Its args, env, mounts, hooks, rlimits and devices are what the kubelet requested; the
// runtime's own mounts and defaults precede them. pod and ctr are neither kept nor changed.
func (r *Runtime) CreateContainer(ctx context.Context, pod *api.PodSandbox, ctr *api.Container) (*Created, error) {
	before := BaseSpec(ctr)
	shown := Shown(pod, ctr, before)
	adjust, err := r.Adjust(ctx, pod, shown)
	if err != nil {
		return nil, err
	}
	spec := BaseSpec(ctr)
	if err := r.Apply(spec, adjust); err != nil {
		return nil, fmt.Errorf("apply adjustment to container %q: %w", ctr.GetName(), err)
	}
	a, err := r.running()
	if err != nil {
		return nil, err
	}
	r.AddContainer(shown)
	ctx, cancel := r.requestContext(ctx)
	defer cancel()
	if err := a.PostCreateContainer(ctx, &api.PostCreateContainerRequest{Pod: pod, Container: shown}); err != nil {
		return nil, err
	}
	return &Created{Container: shown, Adjust: adjust, Before: before, Spec: spec}, nil
}

// Adjust is the bare request of CreateContainer, for benchmarks: it creates and changes no spec, and
// does not keep the container.
func (r *Runtime) Adjust(ctx context.Context, pod *api.PodSandbox, shown *api.Container) (*api.ContainerAdjustment, error) {
	a, err := r.running()
	if err != nil {
		return nil, err
	}
	ctx, cancel := r.requestContext(ctx)
	defer cancel()
	rpl, err := a.CreateContainer(ctx, &api.CreateContainerRequest{Pod: pod, Container: shown})
	if err != nil {
		return nil, err
	}
	return rpl.GetAdjust(), nil
}

// Apply applies an adjustment to a spec with the runtimes' own code.
func (r *Runtime) Apply(spec *rspec.Spec, adjust *api.ContainerAdjustment) error {
	var opts []nrigen.GeneratorOption
	if r.opts.InjectCDI != nil {
		opts = append(opts, nrigen.WithCDIDeviceInjector(r.opts.InjectCDI))
	}
	g := ocigen.NewFromSpec(spec)
	return nrigen.SpecGenerator(&g, opts...).Adjust(adjust)
}

// StartContainer reports to the plugins that a created container starts and runs.
func (r *Runtime) StartContainer(ctx context.Context, pod *api.PodSandbox, ctr *api.Container) error {
	a, err := r.running()
	if err != nil {
		return err
	}
	ctx, cancel := r.requestContext(ctx)
	defer cancel()
	if err := a.StartContainer(ctx, &api.StartContainerRequest{Pod: pod, Container: ctr}); err != nil {
		return err
	}
	running := proto.CloneOf(ctr)
	running.State = api.ContainerState_CONTAINER_RUNNING
	r.AddContainer(running)
	return a.PostStartContainer(ctx, &api.PostStartContainerRequest{Pod: pod, Container: running})
}

// StopContainer reports to the plugins that a container has stopped.
func (r *Runtime) StopContainer(ctx context.Context, pod *api.PodSandbox, ctr *api.Container) error {
	a, err := r.running()
	if err != nil {
		return err
	}
	ctx, cancel := r.requestContext(ctx)
	defer cancel()
	_, err = a.StopContainer(ctx, &api.StopContainerRequest{Pod: pod, Container: ctr})
	return err
}

// RemoveContainer reports to the plugins that a container is removed, and forgets it.
func (r *Runtime) RemoveContainer(ctx context.Context, pod *api.PodSandbox, ctr *api.Container) error {
	a, err := r.running()
	if err != nil {
		return err
	}
	ctx, cancel := r.requestContext(ctx)
	defer cancel()
	if err := a.RemoveContainer(ctx, &api.RemoveContainerRequest{Pod: pod, Container: ctr}); err != nil {
		return err
	}
	r.Forget(ctr.GetId())
	return nil
}

// Shown returns what a runtime reports to plugins of a container with a spec.
func Shown(pod *api.PodSandbox, ctr *api.Container, spec *rspec.Spec) *api.Container {
	c := proto.CloneOf(ctr)
	if c.Id == "" {
		c.Id = NewID()
	}
	c.PodSandboxId = pod.GetId()
	c.State = api.ContainerState_CONTAINER_CREATED
	c.Args = spec.Process.Args
	c.Env = spec.Process.Env
	c.Mounts = api.FromOCIMounts(spec.Mounts)
	c.Hooks = api.FromOCIHooks(spec.Hooks)
	if c.Linux == nil {
		c.Linux = &api.LinuxContainer{}
	}
	c.Linux.Devices = api.FromOCILinuxDevices(spec.Linux.Devices)
	c.Linux.Namespaces = api.FromOCILinuxNamespaces(spec.Linux.Namespaces)
	c.Linux.Resources = api.FromOCILinuxResources(spec.Linux.Resources, nil)
	return c
}
