// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
)

// usageError is an error in the command line.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Errorf(format+" (run `jackfield-hook --help`): %w",
		append(args, errdefs.ErrInvalidArgument)...)}
}

// ExitStatus returns the program's exit status for an error of Run: 2 for an error in the command
// line, and 1 for any other error.
func ExitStatus(err error) int {
	var usage *usageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &usage):
		return 2
	}
	return 1
}
