// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/resolve"
)

func TestErrorTextHasNoSentinels(t *testing.T) {
	notFound := fmt.Errorf("find device: %w", errdefs.ErrNotFound)
	invalid := fmt.Errorf("parse: %w: %w", errors.New("line 1"), errdefs.ErrInvalidArgument)
	for want, err := range map[string]error{
		"find device":                notFound,
		"resolve: find device":       fmt.Errorf("resolve: %w", notFound),
		"find device; run devices":   fmt.Errorf("%w; run devices", notFound),
		"parse: line 1":              invalid,
		"find device\nparse: line 1": errors.Join(notFound, invalid),
		"hidden":                     &hinted{err: fmt.Errorf("hidden: %w", errdefs.ErrUnavailable)},
		"open /x: permission denied": fmt.Errorf("open /x: %w: %w", unix.EACCES, errdefs.ErrPermissionDenied),
		"open /y: permission denied": fmt.Errorf("open /y: %w", unix.EACCES),
		"device not found here":      errors.New("device not found here"),
		"the device: not found":      errors.New("the device: not found"),
		`container "c": 2 problems: (1) find device (2) find device`: &resolve.Error{Container: "c", Errs: []error{notFound, notFound}},
	} {
		if got := errorText(err); got != want {
			t.Errorf("%v\ngives %q,\nwant  %q", err, got, want)
		}
	}
}

func TestExitStatus(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want int
	}{
		{nil, ExitOK},
		{errAnswerNo, ExitNo},
		{&deniedError{errors.New("x")}, ExitNo},
		{fmt.Errorf("inject: %w", &deniedError{errors.New("x")}), ExitNo},
		{&hinted{err: errors.New("x"), usage: true}, ExitUsage},
		{&hinted{err: &deniedError{errors.New("x")}}, ExitNo},
		{&hinted{err: errors.New("x")}, ExitError},
		{errNoAnswer, ExitError},
		{fmt.Errorf("open: %w", unix.EACCES), ExitError},
		{fmt.Errorf("find: %w", errdefs.ErrNotFound), ExitError},
	} {
		if got := exitStatus(tc.err); got != tc.want {
			t.Errorf("%v: %d, want %d", tc.err, got, tc.want)
		}
	}
}
