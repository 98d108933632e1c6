// SPDX-License-Identifier: Apache-2.0

package annotation

import (
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/diag"
)

// Error is a fault in an annotation. It unwraps to errdefs.ErrInvalidArgument. Its text contains at
// most about 100 bytes of each text from the pod, quoted and in ASCII.
type Error struct {
	Key      string // of the annotation
	Position int    // of the item in the list, from 1; 0 if the key or the whole value is wrong
	Item     string // as found; "" if Position is 0 or the item has no text
	Rule     string // the grammar's rule
}

// Error implements error.
func (e *Error) Error() string {
	if e.Position == 0 {
		return fmt.Sprintf("parse annotation %s: %s", diag.Quote(e.Key), e.Rule)
	}
	if e.Item == "" {
		return fmt.Sprintf("parse annotation %s: item %d: %s", diag.Quote(e.Key), e.Position, e.Rule)
	}
	return fmt.Sprintf("parse annotation %s: item %d, %s: %s", diag.Quote(e.Key), e.Position, diag.Quote(e.Item),
		e.Rule)
}

// Unwrap returns errdefs.ErrInvalidArgument.
func (e *Error) Unwrap() error { return errdefs.ErrInvalidArgument }
