// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jackfield/jackfield/pkg/edits"
	"github.com/jackfield/jackfield/pkg/hooksd/ocihook"
)

// Hooks are the engine's hooks.d directories, as Options made them; nil where none is
// configured, or the door's runtime reads such directories itself.
func (e *Engine) Hooks() HooksDirs { return e.hooks }

// hooksOf are the hooks.d hooks whose conditions match the container.
func (e *Engine) hooksOf(req *Request) []*ocihook.Hook {
	if e.hooks == nil {
		return nil
	}
	all := e.hooks.Hooks()
	if len(all) == 0 {
		return nil
	}
	c := &ocihook.Container{Args: req.Args, Annotations: req.Annotations, HasBindMounts: hasBindMounts(req)}
	if len(req.ContainerAnnotations) > 0 {
		// The pod's over the container's, as CRI-O has it.
		c.Annotations = maps.Clone(req.ContainerAnnotations)
		maps.Copy(c.Annotations, req.Annotations)
	}
	return ocihook.Matching(all, c)
}

// hooksd adds the hooks that policy grants. A hook that is conditioned on
// annotations, and matches those of the pod, was asked for: it is delivered or
// the container fails. Any other was found, and is left alone where no rule
// grants it.
func (p *planner) hooksd(hooks []*ocihook.Hook) {
	for _, h := range hooks {
		asked := h.AskedBy(p.req.Annotations)
		item := Item{Kind: KindHook, Request: "hook " + strconv.Quote(h.Name), From: h.File, File: h.File}
		p.attempt(item, false, func(item *Item) error { return p.hook(h, asked, item) })
	}
}

func (p *planner) hook(h *ocihook.Hook, asked bool, item *Item) error {
	grant, err := p.policy.Hook(p.subject, h.Path)
	if err == nil {
		noteAudit(item, grant)
		if !asked && grant.Rule == "" {
			err = grant.Refusal
		}
	}
	if err == nil {
		err = h.Err
	}
	switch {
	case err != nil && asked:
		return fmt.Errorf("hook file %s, which the pod's annotations ask for: %w", h.File, err)
	case err != nil:
		item.Outcome, item.Reason = LeftAlone, err.Error()
		return nil
	}
	item.Rule = grant.Rule
	for i, stage := range h.Stages {
		p.b.AddHook(&edits.Hook{Stage: edits.Stage(stage), Path: h.Path, Args: h.Args, Env: h.Env, Timeout: h.Timeout,
			Origin: edits.Origin{Source: edits.HooksDir, Request: item.Request, File: h.File, Field: "stages[" + strconv.Itoa(i) + "]", Rule: grant.Rule}})
	}
	return nil
}

// hasBindMounts reports whether whoever asked for the container asked for a bind
// mount of the host, oci-hooks(5). A runtime lists its own mounts beside those:
// they lie in a directory that is named for the sandbox or the container. So
// does the kubelet, in the pod's directory, at places of its own.
func hasBindMounts(req *Request) bool {
	return slices.ContainsFunc(req.Have.Mounts, func(m edits.Mount) bool { return isBind(&m) && !implied(req, &m) })
}

func isBind(m *edits.Mount) bool {
	return m.Type == "bind" || slices.Contains(m.Options, "bind") || slices.Contains(m.Options, "rbind")
}

func implied(req *Request, m *edits.Mount) bool {
	of := func(id string) bool {
		return id != "" && slices.Contains(strings.Split(m.Source, "/"), id)
	}
	if of(req.SandboxID) || of(req.ContainerID) {
		return true
	}
	switch edits.Clean(m.Destination) {
	case "/dev/shm":
		return m.Source == "/dev/shm" // of a pod that shares the host's IPC namespace
	case "/etc/hosts":
		return of(req.PodUID)
	case "/dev/termination-log", "/run/secrets/kubernetes.io/serviceaccount":
		return true
	}
	return false
}
