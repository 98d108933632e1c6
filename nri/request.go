// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"errors"
	"os"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"
	"github.com/sirupsen/logrus"

	"github.com/jackfield/jackfield/pkg/edits"
	"github.com/jackfield/jackfield/pkg/resolve"
)

// crioName is the label in which CRI-O keeps a container's name; other runtimes
// fill the field.
const crioName = "io.kubernetes.container.name"

// request is the container as the runtime describes it.
func request(pod *api.PodSandbox, c *api.Container) *resolve.Request {
	r := &resolve.Request{
		SandboxID: pod.GetId(), ContainerID: c.GetId(),
		Namespace: pod.GetNamespace(), Pod: pod.GetName(), PodUID: pod.GetUid(), Container: containerName(c),
		RuntimeHandler: pod.GetRuntimeHandler(), Labels: pod.GetLabels(), Annotations: pod.GetAnnotations(), Image: image(c),
		Args: c.GetArgs(), ContainerAnnotations: c.GetAnnotations(),
		Have: edits.Existing{Env: c.GetEnv()},
	}
	if u := c.GetUser(); u != nil {
		r.User = &resolve.User{UID: u.GetUid(), GID: u.GetGid()}
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

// image is the container's image as the runtime's own annotations of the container
// have it: containerd's, then CRI-O's. The pod's annotations, which its author
// writes, do not count. "" where neither is there.
func image(c *api.Container) string {
	for _, key := range [...]string{"io.kubernetes.cri.image-name", "io.kubernetes.cri-o.ImageName"} {
		if name := c.GetAnnotations()[key]; name != "" {
			return name
		}
	}
	return ""
}

// hasUserNS reports whether the container has a user namespace of its own.
func hasUserNS(c *api.Container) bool {
	for _, ns := range c.GetLinux().GetNamespaces() {
		if ns.GetType() == "user" {
			return true
		}
	}
	return false
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
	return p.podLog(pod).WithFields(logrus.Fields{"container": c.GetName(), "containerID": c.GetId()})
}

// report counts what became of each request, and has it logged after the runtime
// has its answer.
func (p *Plugin) report(pod *api.PodSandbox, c *api.Container, plan *resolve.Plan) {
	for _, it := range plan.Items {
		if it.Audit != "" {
			p.counters.Audited.Add()
		}
		switch it.Outcome {
		case resolve.Injected:
			p.counters.Injected.Add()
		case resolve.Present:
			p.counters.Present.Add()
		case resolve.LeftAlone:
			p.counters.LeftAlone.Add()
		case resolve.Skipped:
			p.counters.Skipped.Add()
		}
	}
	p.later.do(func() { logPlan(p.containerLog(pod, c), plan.Items) })
}

// logPlan logs one line for all that was delivered, and a line for each request
// that was not.
func logPlan(log *logrus.Entry, items []resolve.Item) {
	var injected []string
	for _, it := range items {
		if it.Audit != "" {
			log.WithFields(logrus.Fields{"request": it.Request, "refusal": it.Audit}).Warn("mode enforce would refuse this")
		}
		switch it.Outcome {
		case resolve.Injected:
			injected = append(injected, it.Request+" from "+it.File+" by "+ruleName(it.Rule))
			for _, n := range it.Notes {
				log.WithField("request", it.Request).Info(n)
			}
		case resolve.Present:
			log.WithField("request", it.Request).Debug("the container has it already")
		case resolve.LeftAlone:
			log.WithFields(logrus.Fields{"request": it.Request, "file": it.File, "reason": it.Reason}).Info("left alone")
		case resolve.Skipped:
			log.WithFields(logrus.Fields{"request": it.Request, "reason": it.Reason}).Warn("optional request skipped")
		}
	}
	if len(injected) > 0 {
		log.WithField("requests", injected).Info("injected")
	}
}

// ruleName is a rule for the log; what hands over nothing of the host needs none.
func ruleName(rule string) string {
	if rule == "" {
		return "no rule"
	}
	return "rule " + rule
}

// countErrors counts the requests that made a container impossible.
func (p *Plugin) countErrors(err error) {
	var all *resolve.Error
	if !errors.As(err, &all) {
		p.counters.Failed.Add()
		return
	}
	for _, e := range all.Errs {
		if errdefs.IsPermissionDenied(e) {
			p.counters.Refused.Add()
		} else {
			p.counters.Failed.Add()
		}
	}
}
