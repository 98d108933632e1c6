// SPDX-License-Identifier: Apache-2.0

package edit

import (
	"fmt"

	"github.com/containerd/errdefs"
)

// existing is the origin of everything that the container has before any edit.
var existing = Origin{Request: "the container as the runtime created it"}

// NewConflict returns the errdefs.ErrConflict of two edits that claim the same path, variable or network
// device. The detail can be "".
func NewConflict(kind, name string, first, second Origin, detail string) error {
	text := fmt.Sprintf("%s %q is claimed twice: by %s and by %s", kind, name, first, second)
	if detail != "" {
		text += ": " + detail
	}
	return errdefs.ErrConflict.WithMessage(text)
}
