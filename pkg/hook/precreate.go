// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"context"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	rspec "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/apply/oci"
	"github.com/jackfield/jackfield/pkg/edits"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

// precreate takes the configuration that Podman is about to hand to the runtime,
// and prints it with the edits in it.
func (h *hook) precreate(ctx context.Context, text []byte) error {
	c, err := oci.ParseConfig(text)
	if err != nil {
		return fmt.Errorf("read OCI spec from standard input: %w", err)
	}
	out, err := h.edit(ctx, text, c)
	if err != nil {
		return err
	}
	if _, err := h.env.Stdout.Write(out); err != nil {
		return fmt.Errorf("write OCI spec to standard output: %w", err)
	}
	return nil
}

func (h *hook) edit(ctx context.Context, text []byte, c *oci.Config) ([]byte, error) {
	spec := c.Spec()
	id := h.containerID
	if id == "" {
		id = idOf(spec)
	}
	h.name = id
	s, err := subjectOf(spec.Annotations, id)
	if err != nil || s.pause {
		return text, err
	}
	if err := h.load(); err != nil {
		return nil, err
	}
	if err := h.checkAsker(&s, spec.Annotations); err != nil {
		return nil, err
	}
	req := s.request(id, spec.Annotations, spec, 0)
	plan, err := h.resolve(ctx, req, func() bool { return true })
	if err != nil {
		return nil, err
	}
	if plan == nil {
		return text, nil
	}
	if h.userNamespace(spec) {
		if err := h.bindDevices(&plan.Set); err != nil {
			return nil, err
		}
	}
	if plan.Staging != nil {
		if err := h.addUndo(&plan.Set, id, req.Have.Hooks); err != nil {
			return nil, err
		}
	}
	if text, err = c.Apply(&plan.Set); err != nil {
		return nil, err
	}
	return text, h.prepare(plan.Staging)
}

// idOf is the ID that Podman gave the container, which is in no field of its
// configuration: its cgroup is named after it, below that of the pod of which it is,
// which is named after the pod. Rootless Podman may have no cgroup; then it is the
// name of the directory of the files that are mounted into it, DRIVER-containers/ID. Of
// those some are of the container whose network it joins; /run/.containerenv is its own.
// A configuration of somebody else's gets an ID made from its root.
func idOf(spec *rspec.Spec) string {
	if spec.Linux != nil {
		if id, ok := hexID(spec.Linux.CgroupsPath); ok {
			return id
		}
	}
	found := ""
	for i := range spec.Mounts {
		m := &spec.Mounts[i]
		if id, ok := idInStorage(m.Source); ok && (found == "" || m.Destination == "/run/.containerenv") {
			found = id
		}
	}
	if found != "" {
		return found
	}
	root := ""
	if spec.Root != nil {
		root = spec.Root.Path
	}
	// Whoever could look for two roots of one sum writes the fields above as well.
	sum := fnv.New128a()
	sum.Write([]byte(root))
	return "root-" + hex.EncodeToString(sum.Sum(nil))
}

// idInStorage is the container of a file in Podman's storage.
func idInStorage(file string) (string, bool) {
	_, name, ok := strings.Cut(file, "-containers/")
	name, _, _ = strings.Cut(name, "/")
	id, isID := hexID(name)
	return id, ok && isID && id == name
}

// hexID is the last 64 hexadecimal digits that stand alone in a text.
func hexID(s string) (id string, ok bool) {
	for i := 0; i < len(s); {
		j := i
		for j < len(s) && strings.IndexByte("0123456789abcdef", s[j]) >= 0 {
			j++
		}
		if j-i == 64 {
			id, ok = s[i:j], true
		}
		i = j + 1
	}
	return id, ok
}

// userNamespace reports that the runtime will not be able to make device nodes.
func (h *hook) userNamespace(spec *rspec.Spec) bool {
	if spec.Linux != nil && slices.ContainsFunc(spec.Linux.Namespaces, func(n rspec.LinuxNamespace) bool { return n.Type == rspec.UserNamespace }) {
		return true
	}
	_, inside := h.around()
	return inside
}

// bindDevices has nodes bound that are elsewhere on the host: in a user namespace a
// runtime binds what the host has at the path in the container, whatever that is.
func (h *hook) bindDevices(set *edits.Set) error {
	for i := range set.Devices {
		d := &set.Devices[i]
		from := d.HostPath
		if from == "" {
			from = d.Path
		}
		st, err := h.host.Stat(from)
		if err != nil {
			return fmt.Errorf("%s: device node %q: in a user namespace only a node of the host can be had: %w", d.Origin, d.Path, err)
		}
		major, minor := int64(unix.Major(st.Rdev)), int64(unix.Minor(st.Rdev))
		if st.Mode&unix.S_IFMT != fileType(d.Type) || d.Type != "p" && (major != d.Major || minor != d.Minor) {
			return fmt.Errorf("%s: device node %q: in a user namespace only a node of the host can be had, and the host's %q is a %s with number %d:%d, not one of type %s with %d:%d: %w",
				d.Origin, d.Path, from, hostfs.TypeName(st.Mode), major, minor, d.Type, d.Major, d.Minor, errdefs.ErrConflict)
		}
		if from != d.Path {
			d.Bind = true
		}
	}
	return nil
}

// fileType is that of a device's node, 0 for what is none.
func fileType(device string) uint32 {
	switch device {
	case "c", "u":
		return unix.S_IFCHR
	case "b":
		return unix.S_IFBLK
	case "p":
		return unix.S_IFIFO
	}
	return 0
}

// addUndo adds the hook that removes what is made for the container on the host.
func (h *hook) addUndo(set *edits.Set, id string, have []edits.Hook) error {
	self, err := h.env.Self()
	if err != nil {
		return err
	}
	args := []string{"jackfield-hook", "--container-id", id}
	if h.configFile != "" {
		args = append(args, "--config", h.configFile)
	}
	if h.logTo != "" {
		args = append(args, "--log", h.logTo)
	}
	undo := edits.Hook{Stage: edits.Poststop, Path: self, Args: append(args, string(Poststop)),
		Origin: edits.Origin{Source: edits.View, Request: "removing what was made for the container"}}
	if !slices.ContainsFunc(have, func(o edits.Hook) bool {
		return o.Stage == undo.Stage && o.Path == undo.Path && slices.Equal(o.Args, undo.Args)
	}) {
		set.Hooks = append(set.Hooks, undo)
	}
	return nil
}

// errNoContainer is for a stage whose state has no process.
func errNoContainer(stage Stage, pid int) error {
	return fmt.Errorf("stage %s: the state has pid %d, want the container's first process: %w", stage, pid, errdefs.ErrInvalidArgument)
}
