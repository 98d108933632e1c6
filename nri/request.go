// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"slices"

	"github.com/containerd/nri/pkg/api"

	"github.com/jackfield/jackfield/internal/base/quantity"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/engine"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// containerNameLabel is the label with which CRI-O reports a container's name. Other runtimes set the field.
const containerNameLabel = "io.kubernetes.container.name"

// newRequest turns the runtime's description of a container into a request. c is nil for the sandbox itself.
func newRequest(runtime string, pod *api.PodSandbox, c *api.Container) *engine.Request {
	r := &engine.Request{
		SandboxID: pod.GetId(), ContainerID: c.GetId(),
		Namespace: pod.GetNamespace(), Pod: pod.GetName(), PodUID: pod.GetUid(), Container: containerName(c),
		RuntimeHandler: pod.GetRuntimeHandler(), Labels: pod.GetLabels(), Annotations: pod.GetAnnotations(),
		Image: containerImage(runtime, c), Args: c.GetArgs(), ContainerAnnotations: c.GetAnnotations(),
		UserNS: userNS(pod, c), HostIPC: sharesHostIPC(pod), Have: edit.Existing{Env: c.GetEnv()},
	}
	if u := c.GetUser(); u != nil {
		r.User = &engine.User{UID: u.GetUid(), GID: u.GetGid()}
		r.Have.GIDs = append(slices.Clone(u.GetAdditionalGids()), u.GetGid())
	}
	for _, m := range c.GetMounts() {
		r.Have.Mounts = append(r.Have.Mounts, edit.Mount{
			Destination: m.GetDestination(), Source: m.GetSource(), Type: m.GetType(), Options: m.GetOptions()})
	}
	r.MarkRuntimeMounts()
	for _, l := range c.GetRlimits() {
		if l.GetType() == edit.RlimitMemlock {
			r.Have.Memlock = &edit.Rlimit{Soft: quantity.Memory(l.GetSoft()), Hard: quantity.Memory(l.GetHard())}
		}
	}
	for _, d := range c.GetLinux().GetDevices() {
		r.Have.Devices = append(r.Have.Devices, edit.Device{Path: d.GetPath(), Type: d.GetType(),
			Major: d.GetMajor(), Minor: d.GetMinor(), FileMode: d.GetFileMode().Get()})
	}
	h := c.GetHooks()
	if h == nil {
		return r
	}
	for stage, hooks := range map[edit.Stage][]*api.Hook{
		edit.Prestart: h.GetPrestart(), edit.CreateRuntime: h.GetCreateRuntime(),
		edit.CreateContainer: h.GetCreateContainer(), edit.StartContainer: h.GetStartContainer(),
		edit.Poststart: h.GetPoststart(), edit.Poststop: h.GetPoststop(),
	} {
		for _, hook := range hooks {
			r.Have.Hooks = append(r.Have.Hooks, edit.Hook{
				Stage: stage, Path: hook.GetPath(), Args: hook.GetArgs(), Env: hook.GetEnv()})
		}
	}
	return r
}

// containerName returns the container's name in its pod, from the kubelet's label if the runtime sets no name.
func containerName(c *api.Container) string {
	if name := c.GetName(); name != "" {
		return name
	}
	return c.GetLabels()[containerNameLabel]
}

// containerImage returns the container's image from the runtime's own annotation of the container, "" if it is
// unknown. containerd overwrites a value of the pod's author under its key. CRI-O's annotation
// io.kubernetes.cri-o.ImageName is not used: it has the name of the same content that was pulled last, and not
// the name that the container requested.
func containerImage(runtime string, c *api.Container) string {
	if runtime == "containerd" {
		return c.GetAnnotations()["io.kubernetes.cri.image-name"]
	}
	return ""
}

// sharesHostIPC reports whether the pod has the host's IPC namespace. It is false if the runtime reports no
// namespaces.
func sharesHostIPC(pod *api.PodSandbox) bool {
	namespaces := pod.GetLinux().GetNamespaces()
	isIPC := func(ns *api.LinuxNamespace) bool { return ns.GetType() == "ipc" }
	return len(namespaces) > 0 && !slices.ContainsFunc(namespaces, isIPC)
}

// userNS returns the container's own user namespace, nil if it has none. The sandbox's process is also in it.
func userNS(pod *api.PodSandbox, c *api.Container) *engine.UserNS {
	for _, ns := range c.GetLinux().GetNamespaces() {
		if ns.GetType() == "user" {
			return engine.JoinedUserNS(ns.GetPath(), int(pod.GetPid()&(1<<31-1)))
		}
	}
	return nil
}

// inheritedMemlock returns the limit of locked memory of the sandbox's process, which has the limits of the runtime
// like the container; nil if it is unknown. The runtime reports no limits (containerd 2.4, CRI-O 1.35).
func inheritedMemlock(host hostfs.Root, pod *api.PodSandbox) *edit.Rlimit {
	soft, hard, err := host.Memlock(int(pod.GetPid()&(1<<31-1)), pod.GetId())
	if err != nil {
		return nil
	}
	return &edit.Rlimit{Soft: quantity.Memory(soft), Hard: quantity.Memory(hard)}
}
