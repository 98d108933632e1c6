// SPDX-License-Identifier: Apache-2.0

package diag_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/diag"
)

// wrapper has the text of the error that it wraps.
type wrapper struct{ error }

func (w wrapper) Unwrap() error { return w.error }

// twoErrors prints both of its errors in one line.
type twoErrors [2]error

func (e twoErrors) Error() string   { return fmt.Sprintf("(1) %v (2) %v", e[0], e[1]) }
func (e twoErrors) Unwrap() []error { return e[:] }

func TestErrorTextHasNoSentinels(t *testing.T) {
	notFound := fmt.Errorf("find device: %w", errdefs.ErrNotFound)
	invalid := fmt.Errorf("parse: %w: %w", errors.New("line 1"), errdefs.ErrInvalidArgument)
	for want, err := range map[string]error{
		"find device":                     notFound,
		"resolve: find device":            fmt.Errorf("resolve: %w", notFound),
		"find device; run devices":        fmt.Errorf("%w; run devices", notFound),
		"parse: line 1":                   invalid,
		"find device\nparse: line 1":      errors.Join(notFound, invalid),
		"hidden":                          wrapper{fmt.Errorf("hidden: %w", errdefs.ErrUnavailable)},
		"open /x: permission denied":      fmt.Errorf("open /x: %w: %w", unix.EACCES, errdefs.ErrPermissionDenied),
		"open /y: permission denied":      fmt.Errorf("open /y: %w", unix.EACCES),
		"device not found here":           errors.New("device not found here"),
		"the device: not found":           errors.New("the device: not found"),
		"(1) find device (2) find device": twoErrors{notFound, notFound},
	} {
		if got := diag.ErrorText(err); got != want {
			t.Errorf("%v\ngives %q,\nwant  %q", err, got, want)
		}
	}
}
