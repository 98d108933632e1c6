// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"fmt"

	"github.com/containerd/errdefs"
)

// Claim is the statement of one source.
type Claim struct {
	Source string // host path of a file, or the result of [FromKubelet] or [FromEnvironment]
	Says   string // `PCI device 0000:03:00.2`
}

// ConflictError is a contradiction between two sources. It unwraps to errdefs.ErrConflict.
type ConflictError struct {
	On            string // the disputed question: `which device net1 is`
	First, Second Claim
	Hint          string // remedy; can be ""
}

func (e *ConflictError) Error() string {
	s := fmt.Sprintf("%s: %s says %s, but %s says %s", e.On, e.First.Source, e.First.Says, e.Second.Source,
		e.Second.Says)
	if e.Hint != "" {
		s += "; " + e.Hint
	}
	return s
}

// Unwrap makes the error an errdefs.ErrConflict.
func (e *ConflictError) Unwrap() error { return errdefs.ErrConflict }

// UnlistedError is the error for a resource requested in a container that the kubelet does not
// list. The kubelet lists ordinary containers and restartable init containers, but no other init
// container and no ephemeral container. It unwraps to errdefs.ErrNotFound.
type UnlistedError struct {
	Resource string
	// Holders are the pod's containers to which the kubelet allocated the resource or, if a device
	// was requested, that device.
	Holders []string
	// Claimed is set if the container's environment lists devices of the resource. The container
	// can then have devices that the kubelet does not list.
	Claimed bool
}

func (e *UnlistedError) Error() string {
	return fmt.Sprintf("resource %q: %s; write devices.jackfield.dev/container.NAME for the containers that have it",
		e.Resource, unlisted)
}

// Unwrap makes the error an errdefs.ErrNotFound.
func (e *UnlistedError) Unwrap() error { return errdefs.ErrNotFound }

// UnansweredError is the error for a requested resource if no source lists the container's devices:
// the kubelet has no socket, and the container has no variable.
type UnansweredError struct{ err error }

func (e *UnansweredError) Error() string { return e.err.Error() }

// Unwrap returns an errdefs.ErrNotFound, or errdefs.ErrUnavailable if the kubelet is required.
func (e *UnansweredError) Unwrap() error { return e.err }

// FromKubelet returns the kubelet's name as a source. socket is the host path of its socket.
func FromKubelet(socket string) string { return "the kubelet (" + socket + ")" }

// FromEnvironment returns the name of a container's environment variable as a source.
func FromEnvironment(variable string) string { return "the container's environment (" + variable + ")" }
