// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/containerd/errdefs"
	rspec "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jackfield/jackfield/pkg/apply/live"
	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/edits"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

// running is createRuntime and prestart: the container has its namespaces, and its
// configuration is read no more.
func (h *hook) running(ctx context.Context, st *rspec.State) (err error) {
	s, err := subjectOf(st.Annotations, st.ID)
	if err != nil || s.pause {
		return err
	}
	if st.Pid == 0 {
		return errNoContainer(h.stage, st.Pid)
	}
	if err := h.load(); err != nil {
		return err
	}
	if err := h.checkAsker(&s, st.Annotations); err != nil {
		return err
	}
	if err := h.handOver(&s); err != nil {
		return err
	}
	c, err := h.bundleConfig(st.Bundle)
	if err != nil {
		return err
	}
	spec := c.Spec()
	if spec.Root == nil || spec.Root.Path == "" {
		return fmt.Errorf("read OCI spec %q: root.path: missing: %w", path.Join(st.Bundle, "config.json"), errdefs.ErrInvalidArgument)
	}
	root := spec.Root.Path
	if !path.IsAbs(root) {
		root = path.Join(st.Bundle, root)
	}
	req := s.request(st.ID, st.Annotations, spec, st.Pid)
	// The runtime has made what is in the configuration: nothing takes its place.
	req.Have.CDIReplaces = false
	if h.cfg.Hook.Undeliverable != config.UndeliverableWarn {
		req.Carries = tooLate
	}
	if slices.ContainsFunc(req.Have.Mounts, func(m edits.Mount) bool { return m.Source == h.nriDir(st.ID) }) {
		h.log.say("info", h.stage, h.name, "the NRI plugin of this node gave the container what it asked for")
		return nil
	}
	plan, err := h.resolve(ctx, req, func() bool { return follows(spec) })
	if err != nil || plan == nil {
		return err
	}
	if plan.Staging != nil {
		plan.Staging.Bundle = st.Bundle
	}
	if err := h.late(&plan.Set); err != nil {
		return err
	}
	if err := h.prepare(plan.Staging); err != nil {
		return err
	}
	undo := func(err error) error {
		if err != nil && plan.Staging != nil {
			// The runtime stops here, and some run no poststop hook then.
			err = errors.Join(err, h.remove(s.sandbox, st.ID))
		}
		return err
	}
	return undo(live.Apply(h.host, live.Target{Pid: st.Pid, Root: root}, &plan.Set, h.entering(undo)))
}

// entering is how the container is entered: by this thread itself in a process that
// can be ended, unless it is in a user namespace, which keeps it from coming back.
func (h *hook) entering(undo func(error) error) live.Options {
	if _, inside := h.around(); inside || h.env.Stranded == nil {
		return live.Options{}
	}
	return live.Options{Stranded: func(err error) {
		err = undo(err)
		h.log.say("error", h.stage, h.name, err.Error())
		h.env.Stranded(err)
	}}
}

// tooLate is what of one request comes too late, as an error.
func tooLate(set *edits.Set, request string) error {
	return live.JoinLate(slices.DeleteFunc(live.TooLate(set), func(l live.Late) bool { return l.Origin.Request != request }))
}

// late fails the container for what comes too late, or says so in the log.
func (h *hook) late(set *edits.Set) error {
	late := live.TooLate(set)
	if len(late) == 0 {
		return nil
	}
	if h.cfg.Hook.Undeliverable == config.UndeliverableWarn {
		for _, l := range late {
			h.log.say("warning", h.stage, h.name, l.Error())
		}
		return nil
	}
	return fmt.Errorf("%w; deliver it at the stage precreate (Podman) or through NRI, or set hook.undeliverable: warn in %s and do without",
		live.JoinLate(late), h.configName())
}

func (h *hook) configName() string {
	if f := h.cfg.File(); f != "" {
		return f
	}
	return config.DefaultPath
}

// poststop removes what was made for the container. It needs nothing but its ID.
func (h *hook) poststop(st *rspec.State) error {
	id := st.ID
	if h.containerID != "" {
		id = h.containerID
	}
	s, err := subjectOf(st.Annotations, id)
	if err != nil {
		return err
	}
	if hostfs.CheckID(id) != nil {
		return nil // runc's grammar for IDs is wider; nothing is made under such a one
	}
	if err := h.load(); err != nil {
		return err
	}
	if _, err := h.host.Lstat(h.cfg.StateDir); errdefs.IsNotFound(err) {
		return nil
	}
	return h.remove(s.sandbox, id)
}
