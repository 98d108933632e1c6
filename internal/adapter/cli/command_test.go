// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

func TestErrorsHaveExitStatus(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want int
	}{
		{nil, ExitOK},
		{errAnswerNo, ExitNo},
		{&deniedError{errors.New("x")}, ExitNo},
		{fmt.Errorf("inject: %w", &deniedError{errors.New("x")}), ExitNo},
		{&hintedError{err: errors.New("x"), usage: true}, ExitUsage},
		{&hintedError{err: &deniedError{errors.New("x")}}, ExitNo},
		{&hintedError{err: errors.New("x")}, ExitError},
		{errNoAnswer, ExitError},
		{fmt.Errorf("open: %w", unix.EACCES), ExitError},
		{fmt.Errorf("find: %w", errdefs.ErrNotFound), ExitError},
	} {
		if got := exitStatus(tc.err); got != tc.want {
			t.Errorf("%v: %d, want %d", tc.err, got, tc.want)
		}
	}
}
