// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/quantity"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/edit/oci"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// precreate reads the configuration that Podman is about to pass to the runtime, and prints it with
// the edits. The output replaces the configuration, so every unknown key must survive.
func (h *hook) precreate(ctx context.Context, text []byte) error {
	c, err := oci.ParseConfig("standard input", text)
	if err != nil {
		return fmt.Errorf("read OCI configuration: %w", err)
	}
	out, err := h.editConfig(ctx, text, c)
	if err != nil {
		return err
	}
	if _, err := h.env.Stdout.Write(out); err != nil {
		return fmt.Errorf("write OCI configuration to standard output: %w", err)
	}
	return nil
}

// editConfig returns the configuration with the edits. The staging directory is prepared last, so that a refused
// container leaves nothing on the host.
func (h *hook) editConfig(ctx context.Context, text []byte, c *oci.Config) ([]byte, error) {
	spec := c.Spec()
	id := cmp.Or(h.containerID, podmanID(spec))
	h.name = id
	s, err := h.identify(spec.Annotations, id)
	if err != nil || s.pause {
		return text, err
	}
	req := s.request(id, spec.Annotations, spec, 0)
	req.InheritedMemlock, req.LimitMemlock = ownMemlock, possibleMemlock
	plan, err := h.resolve(ctx, req, true)
	if err != nil {
		return nil, err
	}
	if plan == nil {
		return text, nil
	}
	// In a user namespace, the container's or this process's own, the runtime cannot create device
	// nodes.
	if _, inside := h.userNS(); inside || req.UserNS != nil {
		if err := h.bindDevices(&plan.Set); err != nil {
			return nil, err
		}
	}
	if plan.Staging != nil {
		if err := h.addPoststopHook(&plan.Set, id, req.Have.Hooks); err != nil {
			return nil, err
		}
	}
	if text, err = c.Apply(&plan.Set); err != nil {
		return nil, err
	}
	return text, h.prepareStaging(plan.Staging)
}

// ownMemlock returns the limit of locked memory of this process. Podman started it, and the container inherits Podman's
// limits.
func ownMemlock() *edit.Rlimit {
	var own unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &own) != nil {
		return nil
	}
	return &edit.Rlimit{Soft: quantity.Memory(own.Cur), Hard: quantity.Memory(own.Max)}
}

// possibleMemlock is engine.Request.LimitMemlock of Podman. Without CAP_SYS_RESOURCE in the host's user namespace, as
// in rootless Podman, the runtime cannot raise the hard limit and would not start the container. This short process
// tries it on itself.
func possibleMemlock(wanted quantity.Memory) (quantity.Memory, string) {
	own := ownMemlock()
	if own == nil || wanted <= own.Hard {
		return wanted, ""
	}
	raised := unix.Rlimit{Cur: uint64(own.Soft), Max: uint64(wanted)}
	if unix.Setrlimit(unix.RLIMIT_MEMLOCK, &raised) == nil {
		return wanted, ""
	}
	return own.Hard, fmt.Sprintf("Podman cannot raise the limit above its own hard limit, %s; raise that of the user "+
		"who runs Podman (limits.conf(5), or LimitMEMLOCK= of the systemd unit)", own.Hard)
}

// bindDevices marks nodes for bind mounts whose host path differs from their path in the container.
// In a user namespace, a runtime binds the host's node at the container's path.
func (h *hook) bindDevices(set *edit.Set) error {
	for i := range set.Devices {
		d := &set.Devices[i]
		from := cmp.Or(d.HostPath, d.Path)
		st, err := h.host.Stat(from)
		if err != nil {
			return fmt.Errorf("%s: device node %q: a container with a user namespace can only get nodes that the "+
				"host has: %w", d.Origin, d.Path, err)
		}
		major, minor := int64(unix.Major(st.Rdev)), int64(unix.Minor(st.Rdev))
		if st.Mode&unix.S_IFMT != d.FileType() || d.Type != "p" && (major != d.Major || minor != d.Minor) {
			return fmt.Errorf("%s: device node %q: a container with a user namespace can only get nodes that the "+
				"host has; the host's %q is a %s with number %d:%d, not of type %s with %d:%d: %w",
				d.Origin, d.Path, from, hostfs.TypeName(st.Mode), major, minor, d.Type, d.Major, d.Minor,
				errdefs.ErrConflict)
		}
		if from != d.Path {
			d.Bind = true
		}
	}
	return nil
}

// addPoststopHook adds the hook that removes the container's objects on the host.
func (h *hook) addPoststopHook(set *edit.Set, id string, existing []edit.Hook) error {
	self, err := h.env.Self()
	if err != nil {
		return err
	}
	undo := edit.Hook{Stage: edit.Poststop, Path: self, Args: h.commandLine([]string{"jackfield-hook"}, id, Poststop),
		Origin: edit.Origin{Source: edit.SourceJackfield, Request: "clean-up after the container"}}
	if !slices.ContainsFunc(existing, func(o edit.Hook) bool {
		return o.Stage == undo.Stage && o.Path == undo.Path && slices.Equal(o.Args, undo.Args)
	}) {
		set.Hooks = append(set.Hooks, undo)
	}
	return nil
}
