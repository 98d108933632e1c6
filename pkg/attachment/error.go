// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"fmt"

	"github.com/containerd/errdefs"
)

// Claim is what one source says.
type Claim struct {
	Source string // a file's host path, or what [FromKubelet] and [FromEnvironment] give
	Says   string // `PCI device 0000:03:00.2`
}

// ConflictError is two sources that contradict each other on something that
// matters. It unwraps to errdefs.ErrConflict.
type ConflictError struct {
	On            string // what they disagree on: `which device is "net1"`
	First, Second Claim
	Hint          string // what to do; may be ""
}

func (e *ConflictError) Error() string {
	s := fmt.Sprintf("%s: %s says %s, but %s says %s", e.On, e.First.Source, e.First.Says, e.Second.Source, e.Second.Says)
	if e.Hint != "" {
		s += "; " + e.Hint
	}
	return s
}

// Unwrap makes the error an errdefs.ErrConflict.
func (e *ConflictError) Unwrap() error { return errdefs.ErrConflict }

// UnlistedError is a resource that is asked for in a container that the kubelet does not
// list: it lists every ordinary container of a pod that it answers about, and every init
// container that restarts, and no other init container and no ephemeral one. It unwraps
// to errdefs.ErrNotFound.
type UnlistedError struct {
	Resource string
	// Holders are the containers of the pod to which the kubelet gave the resource, or
	// the device of it that is asked for.
	Holders []string
	// Claimed is set where the container's environment names devices of the resource,
	// so that it may have some that the kubelet does not tell.
	Claimed bool
}

func (e *UnlistedError) Error() string {
	return fmt.Sprintf("resource %q: %s; write devices.jackfield.dev/container.NAME for the containers that have it: %v", e.Resource, unlisted, errdefs.ErrNotFound)
}

// Unwrap makes the error an errdefs.ErrNotFound.
func (e *UnlistedError) Unwrap() error { return errdefs.ErrNotFound }

// UnansweredError is a resource of which nothing says whether it was allocated to the container: there is no kubelet to ask, and no variable.
type UnansweredError struct{ err error }

func (e *UnansweredError) Error() string { return e.err.Error() }

// Unwrap gives an errdefs.ErrNotFound, or errdefs.ErrUnavailable where the kubelet is required.
func (e *UnansweredError) Unwrap() error { return e.err }

// FromKubelet names the kubelet as a source; socket is the host path at which it
// was asked.
func FromKubelet(socket string) string { return "the kubelet (" + socket + ")" }

// FromEnvironment names a variable of the container's environment as a source.
func FromEnvironment(variable string) string { return "the container's environment (" + variable + ")" }
