// SPDX-License-Identifier: Apache-2.0

package sockdir

import (
	"fmt"

	"github.com/containerd/errdefs"
)

// Claimants is the claims of the directories above a socket.
type Claimants struct {
	socket string
	claims []heldDirectory
	err    error
}

type heldDirectory struct {
	dir string
	claim
}

// HasAny reports whether there is a claim.
func (a Claimants) HasAny() bool { return len(a.claims) > 0 }

// Check returns errdefs.ErrConflict if another sandbox has one of the claims: the application there could replace the
// vswitch's socket.
func (a Claimants) Check(sandbox string) error {
	for _, c := range a.claims {
		if other := c.otherHolder(sandbox); other != nil {
			return errdefs.ErrConflict.WithMessage(fmt.Sprintf(
				"socket %q lies in directory %q, which belongs to sandbox %s, whose application can write it",
				a.socket, c.dir, other.Sandbox))
		}
	}
	return a.err
}
