// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/diag"
)

// Diagnostic is one fault in a spec file. A warning does not refuse the file.
type Diagnostic = diag.Diagnostic

// SpecError is why a spec file is refused. It unwraps to a sentinel: ErrInvalidArgument for
// the content, ErrPermissionDenied for a file that others can write or that cannot be
// opened, ErrNotFound for a dangling symlink, and ErrUnavailable where reading fails.
type SpecError struct {
	// Path is the host path of the file.
	Path string
	// Diagnostics has at least one entry, in the order of the file. They name no File.
	Diagnostics []*Diagnostic
	// Err is the sentinel; nil stands for errdefs.ErrInvalidArgument.
	Err error
}

// Error names the file, the first fault, and the number of further faults.
func (e *SpecError) Error() string {
	if len(e.Diagnostics) == 0 {
		return "load CDI spec " + e.Path + ": no reason recorded"
	}
	first := *e.Diagnostics[0]
	first.File = e.Path
	text := "load CDI spec " + first.Error()
	if n := len(e.Diagnostics) - 1; n > 0 {
		text += fmt.Sprintf(" (and %d more)", n)
	}
	return text
}

// Unwrap returns the sentinel.
func (e *SpecError) Unwrap() error {
	if e.Err == nil {
		return errdefs.ErrInvalidArgument
	}
	return e.Err
}
