// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"fmt"

	"github.com/containerd/errdefs"
	rspec "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jackfield/jackfield/pkg/edits"
)

// Apply makes the edits in spec (OCI Runtime Specification 1.3.0), with the
// semantics of CDI's own library:
//
//   - a variable takes the place of the last one of its name, or is appended;
//   - a device node takes the place of those at its path, and goes to the end of
//     the list; character and block devices get a rule of the device cgroup, "rwm"
//     unless the edit says otherwise, none at all for edits.NoAccess;
//   - a mount takes the place of the first one at its destination, and all mounts
//     are then sorted by depth, stably; in a user namespace CDI's bind mounts are
//     mapped ("idmap", "ridmap") unless they say so themselves;
//   - where a mount of Jackfield's own is a slave ("rslave") of the host's, the root
//     becomes one too, unless it is one already or is shared: else runtimes that
//     have it private would cut the mount off;
//   - hooks and groups are appended, the RDT configuration is replaced, a network
//     device takes the place of the one of its host name.
//
// A rule that spec has already, with none after it that denies anything, is not
// added again.
//
// The error is an *edits.ConflictError, or errdefs.ErrInvalidArgument for a nil
// spec and an unknown hook stage; spec is as it was then. Slices and maps of
// spec are replaced, not written to, and nothing in spec is shared with set.
func Apply(spec *rspec.Spec, set *edits.Set) error {
	if spec == nil {
		return fmt.Errorf("edit OCI spec: there is none: %w", errdefs.ErrInvalidArgument)
	}
	if set == nil || set.Empty() {
		return nil
	}
	var c changes
	if err := c.plan(spec, set); err != nil {
		return fmt.Errorf("edit OCI spec: %w", err)
	}
	c.commit(spec)
	return nil
}

// Existing is what the container has by its spec, for a resolution whose edits are
// to be applied to it. It shares memory with spec, which must not be changed
// meanwhile.
func Existing(spec *rspec.Spec) edits.Existing {
	have := edits.Existing{CDIReplaces: true}
	if spec.Process != nil {
		have.Env = spec.Process.Env
	}
	if len(spec.Mounts) > 0 {
		have.More = (*mountList)(spec)
	}
	if spec.Linux != nil && len(spec.Linux.Devices) > 0 {
		have.Devices = make([]edits.Device, len(spec.Linux.Devices))
		for i := range spec.Linux.Devices {
			d := &spec.Linux.Devices[i]
			have.Devices[i] = edits.Device{Path: d.Path, Type: d.Type, Major: d.Major, Minor: d.Minor, FileMode: d.FileMode, UID: d.UID, GID: d.GID}
		}
	}
	if spec.Hooks == nil {
		return have
	}
	for i, stage := range stageNames {
		for _, h := range hooksOf(spec, i) {
			have.Hooks = append(have.Hooks, edits.Hook{Stage: stage, Path: h.Path, Args: h.Args, Env: h.Env, Timeout: h.Timeout})
		}
	}
	return have
}

// mountList is a spec as the list of its mounts.
type mountList rspec.Spec

func (l *mountList) MountAt(i int) (destination, source string, ok bool) {
	if i >= len(l.Mounts) {
		return "", "", false
	}
	return l.Mounts[i].Destination, l.Mounts[i].Source, true
}

// stages is how many stages hooks have, in the order of edits.Stages.
const stages = 6

// stageNames are the stages in the order of edits.Stages.
var stageNames = [stages]edits.Stage{edits.Prestart, edits.CreateRuntime, edits.CreateContainer, edits.StartContainer, edits.Poststart, edits.Poststop}

// stageField is the list of one stage.
func stageField(h *rspec.Hooks, stage int) *[]rspec.Hook {
	return [stages]*[]rspec.Hook{
		//lint:ignore SA1019 CDI names the stage, and runtimes run it.
		&h.Prestart,
		&h.CreateRuntime, &h.CreateContainer, &h.StartContainer, &h.Poststart, &h.Poststop,
	}[stage]
}

func hooksOf(spec *rspec.Spec, stage int) []rspec.Hook {
	if spec.Hooks == nil {
		return nil
	}
	return *stageField(spec.Hooks, stage)
}

func hasUserNamespace(spec *rspec.Spec) bool {
	if spec.Linux == nil {
		return false
	}
	for i := range spec.Linux.Namespaces {
		if spec.Linux.Namespaces[i].Type == rspec.UserNamespace {
			return true
		}
	}
	return false
}
