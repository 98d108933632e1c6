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

// matchingHooks returns the hooks.d hooks whose conditions match the container.
func matchingHooks(all []*ocihook.Hook, req *Request) []*ocihook.Hook {
	if len(all) == 0 {
		return nil
	}
	c := &ocihook.Container{Args: req.Args, Annotations: req.Annotations, HasBindMounts: hasBindMounts(req)}
	if len(req.ContainerAnnotations) > 0 {
		// The pod's annotations override the container's, as in CRI-O.
		c.Annotations = maps.Clone(req.ContainerAnnotations)
		maps.Copy(c.Annotations, req.Annotations)
	}
	return ocihook.Matching(all, c)
}

// addHooks adds the hooks that match the container.
func addHooks(in *inputs, add func(candidate)) error {
	for _, h := range in.hooks {
		item := Item{Kind: KindHook, Name: h.Name, Request: "hook " + strconv.Quote(h.Name), From: h.File, File: h.File}
		add(candidate{item: item, resolve: func(d *delta) error { return resolveHook(in, d, h) }})
	}
	return nil
}

// resolveHook adds a hook that policy grants. A hook whose annotation conditions match the pod is an
// explicit request: it is delivered or the container fails. Any other hook is unmanaged unless a
// rule grants it.
func resolveHook(in *inputs, d *delta, h *ocihook.Hook) error {
	requested := h.AskedBy(in.req.Annotations)
	grant, err := in.policy.Hook(in.subject(), h.Path)
	if err == nil {
		d.item.noteGrant(grant)
		if !requested && grant.Rule == "" {
			err = grant.Refusal
		}
	}
	if err == nil {
		err = h.Err
	}
	switch {
	case err != nil && requested:
		return &RequestError{Explanation: "hook file " + h.File + ", which the pod's annotations ask for", Err: err}
	case err != nil:
		d.item.SetOutcome(Unmanaged, err)
		return nil
	}
	d.item.Rule = grant.Rule
	origin := edit.Origin{Source: edit.HooksDir, Request: d.item.Request, File: h.File, Rule: grant.Rule}
	for i, stage := range h.Stages {
		origin.Field = "stages[" + strconv.Itoa(i) + "]"
		d.edits.AddHook(&edit.Hook{Stage: edit.Stage(stage), Path: h.Path, Args: h.Args, Env: h.Env,
			Timeout: h.Timeout, Origin: origin})
	}
	return nil
}

// hasBindMounts reports whether the container's user requested a bind mount of the host,
// oci-hooks(5). Mounts of the runtime itself do not count: they are in a directory named for the
// sandbox or the container. The kubelet's mounts in the pod's directory do not count either.
func hasBindMounts(req *Request) bool {
	return slices.ContainsFunc(req.Have.Mounts, func(m edit.Mount) bool {
		return mountopt.IsBind(m.Type, m.Options) && !isImplied(req, &m)
	})
}

// isImplied reports whether the runtime or the kubelet added a mount. The destination alone does not show that: the
// pod's author can mount a path of the host at any destination.
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
	// The destinations at which the runtime or the kubelet mounts, each with the source that it mounts there.
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
