// SPDX-License-Identifier: Apache-2.0

package annotation

import (
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/wording"
)

// Error says what is wrong with an annotation. It unwraps to
// errdefs.ErrInvalidArgument. Its text holds at most about 100 bytes of any
// text that came from the pod, quoted and in ASCII.
type Error struct {
	// Key is the annotation's key as found; empty for a request that did not
	// come from an annotation.
	Key string
	// Position is the item's place in the list, from 1; 0 where the key or
	// the value as a whole is wrong.
	Position int
	// Item is the item as found; empty where Position is 0, and where there
	// is no text to show.
	Item string
	// Rule is what the grammar wants.
	Rule string
}

// Error implements error.
func (e *Error) Error() string {
	if e.Key == "" {
		return fmt.Sprintf("parse request %s: %s", quote(e.Item), e.Rule)
	}
	if e.Position == 0 {
		return fmt.Sprintf("parse annotation %s: %s", quote(e.Key), e.Rule)
	}
	if e.Item == "" {
		return fmt.Sprintf("parse annotation %s: item %d: %s", quote(e.Key), e.Position, e.Rule)
	}
	return fmt.Sprintf("parse annotation %s: item %d, %s: %s", quote(e.Key), e.Position, quote(e.Item), e.Rule)
}

// Unwrap implements the errors package's protocol.
func (e *Error) Unwrap() error { return errdefs.ErrInvalidArgument }

func quote(s string) string { return wording.Quote(s, wording.Most) }
