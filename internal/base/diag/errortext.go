// SPDX-License-Identifier: Apache-2.0

package diag

import (
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
)

// sentinels are errors that only classify. Programs test for them with errors.Is; users need only
// the text before them.
var sentinels = []error{
	errdefs.ErrUnknown, errdefs.ErrInvalidArgument, errdefs.ErrNotFound, errdefs.ErrAlreadyExists,
	errdefs.ErrPermissionDenied,
	errdefs.ErrResourceExhausted, errdefs.ErrFailedPrecondition, errdefs.ErrConflict, errdefs.ErrNotModified,
	errdefs.ErrAborted,
	errdefs.ErrOutOfRange, errdefs.ErrNotImplemented, errdefs.ErrInternal, errdefs.ErrUnavailable, errdefs.ErrDataLoss,
	errdefs.ErrUnauthenticated,
}

// ErrorText returns the text of an error for a user. It omits the sentinels at its end, and at the
// ends of the errors that it wraps.
func ErrorText(err error) string {
	text := err.Error()
	wrapped := unwrap(err)
	for i, w := range slices.Backward(wrapped) {
		whole := w.Error()
		if slices.Contains(sentinels, w) {
			// Another wrapped error, such as EACCES, can have the same text and be the printed one.
			rest, ok := strings.CutSuffix(text, ": "+whole)
			same := slices.ContainsFunc(wrapped[:i], func(other error) bool { return other.Error() == whole })
			if ok && (!same || strings.HasSuffix(rest, whole)) {
				text = rest
			}
			continue
		}
		if short := ErrorText(w); short != whole {
			if at := strings.LastIndex(text, whole); at >= 0 {
				text = text[:at] + short + text[at+len(whole):]
			}
		}
	}
	return text
}

// Sprintf is fmt.Sprintf with ErrorText for the errors among args.
func Sprintf(format string, args ...any) string {
	for i, arg := range args {
		if err, ok := arg.(error); ok {
			args[i] = ErrorText(err)
		}
	}
	return fmt.Sprintf(format, args...)
}

func unwrap(err error) []error {
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		if w := e.Unwrap(); w != nil {
			return []error{w}
		}
	case interface{ Unwrap() []error }:
		return e.Unwrap()
	}
	return nil
}
