// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/containerd/errdefs"
	rspec "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/quantity"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/deliver/live"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// createRuntime handles the stages createRuntime and prestart. The container has its namespaces,
// and the runtime has read its configuration, so edits are applied to the living container (package
// live). Some edits are too late at this stage.
func (h *hook) createRuntime(ctx context.Context, st *rspec.State) (err error) {
	s, err := h.identify(st.Annotations, st.ID)
	if err != nil || s.pause {
		return err
	}
	if st.Pid == 0 {
		return fmt.Errorf("stage %s: pid: invalid value 0: must be the ID of the container's first process: %w",
			h.stage, errdefs.ErrInvalidArgument)
	}
	if err := h.execWithKubelet(&s); err != nil {
		return err
	}
	c, err := h.readBundleConfig(st.Bundle)
	if err != nil {
		return err
	}
	spec := c.Spec()
	if spec.Root == nil || spec.Root.Path == "" {
		return fmt.Errorf("read OCI configuration %q: root.path is missing: %w", path.Join(st.Bundle, "config.json"),
			errdefs.ErrInvalidArgument)
	}
	root := spec.Root.Path
	if !path.IsAbs(root) {
		root = path.Join(st.Bundle, root)
	}
	req := s.request(st.ID, st.Annotations, spec, st.Pid)
	// The runtime has applied the configuration already, so an edit cannot replace an entry of it.
	req.Have.CDIReplaces = false
	req.LimitMemlock = h.lateMemlock
	if h.cfg.Hook.Undeliverable != config.UndeliverableWarn {
		req.CanDeliver = func(set *edit.Set, request string) error {
			return errors.Join(live.UndeliverableEdits(set, request)...)
		}
	}
	fromNRI := h.host.Path(edit.ContainerDir(path.Dir(h.cfg.StateDir), st.ID)) // mounted by the NRI plugin of this node
	if slices.ContainsFunc(req.Have.Mounts, func(m edit.Mount) bool { return m.Source == fromNRI }) {
		h.logLine("info", "the NRI plugin of this node has delivered the container's requests")
		return nil
	}
	plan, err := h.resolve(ctx, req, seesLaterMounts(spec))
	if err != nil || plan == nil {
		return err
	}
	if plan.Staging != nil {
		plan.Staging.Bundle = st.Bundle
	}
	if err := h.checkUndeliverable(&plan.Set); err != nil {
		return err
	}
	if err := h.prepareStaging(plan.Staging); err != nil {
		return err
	}
	err = live.Apply(h.host, live.Target{Pid: st.Pid, Root: root}, &plan.Set)
	if err != nil && plan.Staging != nil {
		// The runtime stops now, and not every runtime then runs the poststop hook.
		err = errors.Join(err, h.removeStaging(s.sandbox, st.ID))
	}
	return err
}

// lateMemlock is engine.Request.LimitMemlock of the stages after the runtime has read the configuration.
func (h *hook) lateMemlock(quantity.Memory) (quantity.Memory, string) {
	return 0, fmt.Sprintf("stage %s cannot set it, because the runtime has read the container's configuration; "+
		"use stage precreate (Podman) or NRI", h.stage)
}

// checkUndeliverable fails the container because of undeliverable edits, or only logs them,
// depending on hook.undeliverable.
func (h *hook) checkUndeliverable(set *edit.Set) error {
	list := live.UndeliverableEdits(set, "")
	if len(list) == 0 {
		return nil
	}
	if h.cfg.Hook.Undeliverable == config.UndeliverableWarn {
		for _, err := range list {
			h.logLine("warning", diag.ErrorText(err))
		}
		return nil
	}
	return fmt.Errorf("%w; deliver it at stage precreate (Podman) or through NRI, or set hook.undeliverable: warn "+
		"in %s to start without it", errors.Join(list...), cmp.Or(h.cfg.File(), config.DefaultPath))
}

// poststop removes everything that was created for the container on the host. It needs only the
// container's ID, because the container's configuration may be gone.
func (h *hook) poststop(st *rspec.State) error {
	id := cmp.Or(h.containerID, st.ID)
	s, err := subjectOf(st.Annotations, id)
	if err != nil {
		return err
	}
	if hostfs.CheckID(id) != nil {
		return nil // runc accepts more characters in IDs, for which the hook creates nothing
	}
	if err := h.loadConfig(); err != nil {
		return err
	}
	if _, err := h.host.Lstat(h.cfg.StateDir); errdefs.IsNotFound(err) {
		return nil
	}
	return h.removeStaging(s.sandbox, id)
}
