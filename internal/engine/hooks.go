// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/jackfield/jackfield/internal/base/mountopt"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/source/hooksd/ocihook"
)

// hooksOf returns the hooks.d hooks whose conditions match the container.
func (e *Engine) hooksOf(req *Request) []*ocihook.Hook {
	if e.hooks == nil {
		return nil
	}
	all := e.hooks()
	if len(all) == 0 {
		return nil
	}
	c := &ocihook.Container{Args: req.Args, Annotations: req.Annotations, HasBindMounts: hasBindMounts(req)}
	if len(req.ContainerAnnotations) > 0 {
		// The pod's override the container's, as in CRI-O.
		c.Annotations = maps.Clone(req.ContainerAnnotations)
		maps.Copy(c.Annotations, req.Annotations)
	}
	return ocihook.Matching(all, c)
}

// deliverHooks adds the hooks that policy grants. A hook whose annotation conditions match the pod is an
// explicit request: it is delivered or the container fails. Any other hook is unmanaged unless a
// rule grants it.
func (p *planner) deliverHooks(hooks []*ocihook.Hook) {
	for _, h := range hooks {
		asked := h.AskedBy(p.req.Annotations)
		item := Item{Kind: KindHook, Name: h.Name, Request: "hook " + strconv.Quote(h.Name), From: h.File, File: h.File}
		p.deliver(item, func(item *Item) error { return p.addHook(h, asked, item) })
	}
}

func (p *planner) addHook(h *ocihook.Hook, asked bool, item *Item) error {
	grant, err := p.policy.Hook(p.subject, h.Path)
	if err == nil {
		item.noteGrant(grant)
		if !asked && grant.Rule == "" {
			err = grant.Refusal
		}
	}
	if err == nil {
		err = h.Err
	}
	switch {
	case err != nil && asked:
		return &RequestError{Explanation: "hook file " + h.File + ", which the pod's annotations ask for", Err: err}
	case err != nil:
		item.Decline(Unmanaged, err)
		return nil
	}
	item.Rule = grant.Rule
	for i, stage := range h.Stages {
		p.b.AddHook(&edit.Hook{Stage: edit.Stage(stage), Path: h.Path, Args: h.Args, Env: h.Env, Timeout: h.Timeout,
			Origin: edit.Origin{Source: edit.HooksDir, Request: item.Request, File: h.File, Field: "stages[" + strconv.Itoa(i) + "]", Rule: grant.Rule}})
	}
	return nil
}

// hasBindMounts reports whether the container's user requested a bind mount of the host,
// oci-hooks(5). Mounts of the runtime itself do not count: they are in a directory named for the
// sandbox or the container. Neither do the kubelet's, in the pod's directory.
func hasBindMounts(req *Request) bool {
	return slices.ContainsFunc(req.Have.Mounts, func(m edit.Mount) bool { return mountopt.IsBind(m.Type, m.Options) && !isImplied(req, &m) })
}

// isImplied reports whether the runtime or the kubelet added a mount. The destination alone does not show that: the pod's
// author can mount a path of the host at any of them.
func isImplied(req *Request, m *edit.Mount) bool {
	source := strings.Split(path.Clean(m.Source), "/")
	isOf := func(id string) bool { return id != "" && slices.Contains(source, id) }
	if isOf(req.SandboxID) || isOf(req.ContainerID) {
		return true
	}
	var inPod []string // the path in the pod's directory of the kubelet
	if i := slices.Index(source, req.PodUID); i >= 0 && req.PodUID != "" {
		inPod = source[i+1:]
	}
	begins := func(path ...string) bool { return len(inPod) > len(path) && slices.Equal(inPod[:len(path)], path) }
	switch edit.Clean(m.Destination) {
	case "/dev/shm":
		return m.Source == "/dev/shm" && req.HostIPC
	case "/etc/hosts":
		return slices.Equal(inPod, []string{"etc-hosts"})
	case "/dev/termination-log":
		return begins("containers", req.Container)
	case "/run/secrets/kubernetes.io/serviceaccount":
		return begins("volumes", "kubernetes.io~projected") || begins("volumes", "kubernetes.io~secret")
	}
	return false
}
