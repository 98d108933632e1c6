// SPDX-License-Identifier: Apache-2.0

package edits

import (
	"fmt"

	"github.com/containerd/errdefs"
)

// existing is the origin of what the container has before any edit.
var existing = Origin{Request: "the container as the runtime created it"}

// ConflictError reports two edits that claim the same path, variable or network device. It
// unwraps to errdefs.ErrConflict.
type ConflictError struct {
	What, Name    string
	First, Second Origin
	Detail        string
}

func (e *ConflictError) Error() string {
	s := fmt.Sprintf("%s %q is claimed twice: by %s and by %s", e.What, e.Name, e.First, e.Second)
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// Unwrap returns errdefs.ErrConflict.
func (e *ConflictError) Unwrap() error { return errdefs.ErrConflict }
