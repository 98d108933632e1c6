// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"os"
	"strconv"
	"strings"

	"github.com/containerd/nri/pkg/api"
	"github.com/sirupsen/logrus"

	"github.com/jackfield/jackfield/pkg/edits"
	"github.com/jackfield/jackfield/pkg/resolve"
)

// crioName is the label in which CRI-O keeps a container's name; other runtimes
// fill the field.
const crioName = "io.kubernetes.container.name"

// request is the container as the runtime, of that name, describes it.
func request(runtime string, pod *api.PodSandbox, c *api.Container) *resolve.Request {
	r := &resolve.Request{
		SandboxID: pod.GetId(), ContainerID: c.GetId(),
		Namespace: pod.GetNamespace(), Pod: pod.GetName(), PodUID: pod.GetUid(), Container: containerName(c),
		RuntimeHandler: pod.GetRuntimeHandler(), Labels: pod.GetLabels(), Annotations: pod.GetAnnotations(), Image: image(runtime, c),
		Args: c.GetArgs(), ContainerAnnotations: c.GetAnnotations(),
		Have: edits.Existing{Env: c.GetEnv()},
	}
	if u := c.GetUser(); u != nil {
		r.User = &resolve.User{UID: u.GetUid(), GID: u.GetGid()}
	}
	if path, ok := userNS(c); ok {
		r.UserNS = &resolve.UserNS{PID: processIn(path, pod)}
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
	return c.GetLabels()[crioName]
}

// nameOf is a container as messages name it, as resolve.Request.Name does.
func nameOf(pod *api.PodSandbox, c *api.Container) string {
	return (&resolve.Request{Namespace: pod.GetNamespace(), Pod: pod.GetName(), Container: containerName(c)}).Name()
}

// image is the container's image as the runtime's own annotation of the container has
// it, "" where it is not known. containerd writes its key over whatever was there. CRI-O's
// io.kubernetes.cri-o.ImageName has some name of the same content: the one that was
// pulled last, by whomever, and not the one that the container asked for.
func image(runtime string, c *api.Container) string {
	if runtime == "containerd" {
		return c.GetAnnotations()["io.kubernetes.cri.image-name"]
	}
	return ""
}

// userNS is the path of the container's own user namespace, when it has one.
func userNS(c *api.Container) (path string, ok bool) {
	for _, ns := range c.GetLinux().GetNamespaces() {
		if ns.GetType() == "user" {
			return ns.GetPath(), true
		}
	}
	return "", false
}

// processIn is a process in a user namespace: the one that the path is of, or else
// the sandbox's. 0 for none.
func processIn(path string, pod *api.PodSandbox) int {
	if pid, ok := strings.CutPrefix(path, "/proc/"); ok {
		if pid, ok = strings.CutSuffix(pid, "/ns/user"); ok {
			if n, err := strconv.ParseUint(pid, 10, 31); err == nil {
				return int(n)
			}
		}
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

func (p *Plugin) podLog(pod *api.PodSandbox) *logrus.Entry {
	return p.log.WithFields(logrus.Fields{"pod": pod.GetNamespace() + "/" + pod.GetName(), "sandbox": pod.GetId()})
}

func (p *Plugin) containerLog(pod *api.PodSandbox, c *api.Container) *logrus.Entry {
	return p.podLog(pod).WithFields(logrus.Fields{"container": containerName(c), "containerID": c.GetId()})
}
