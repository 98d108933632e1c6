// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/wording"
)

// Severity tells a finding that refuses the file from one that does not.
type Severity int

const (
	// SeverityError refuses the file.
	SeverityError Severity = iota
	// SeverityWarning is worth a look; the file is usable.
	SeverityWarning
)

// String is "error" or "warning".
func (s Severity) String() string {
	if s == SeverityWarning {
		return "warning"
	}
	return "error"
}

// Diagnostic is one finding in a spec file.
type Diagnostic struct {
	Severity Severity
	// Line and Column count from 1, Column in characters; 0 when they are not known
	// (a file that cannot be read).
	Line, Column int
	// Field is the path of the field, such as
	// "devices[2].containerEdits.mounts[0].containerPath"; "" for the whole file.
	Field string
	// Found is the value found, as in the file, shortened; "" when there is none.
	Found string
	// Rule is what is asked for.
	Rule string
}

// String is "line 3, column 7: field: found X: rule".
func (d Diagnostic) String() string {
	var b strings.Builder
	if d.Severity == SeverityWarning {
		b.WriteString("warning: ")
	}
	switch {
	case d.Line > 0 && d.Column > 0:
		fmt.Fprintf(&b, "line %d, column %d: ", d.Line, d.Column)
	case d.Line > 0:
		fmt.Fprintf(&b, "line %d: ", d.Line)
	}
	b.WriteString(wording.Field(d.Field, d.Found, d.Rule))
	return b.String()
}

// sortDiagnostics brings findings into the order of the file.
func sortDiagnostics(list []Diagnostic) {
	slices.SortStableFunc(list, func(a, b Diagnostic) int { return cmp.Or(a.Line-b.Line, a.Column-b.Column) })
}

// SpecError is why a spec file is refused. It unwraps to the sentinel of its
// kind: errdefs.ErrInvalidArgument for its content, ErrPermissionDenied for a
// file others can write or that cannot be opened, ErrNotFound for a dangling
// symlink, ErrUnavailable when reading fails.
type SpecError struct {
	// Path is the host path of the file.
	Path string
	// Diagnostics has at least one entry, in the order of the file.
	Diagnostics []Diagnostic
	// Err is the sentinel; nil stands for errdefs.ErrInvalidArgument.
	Err error
}

// Error names the file, the first finding, and how many more there are.
func (e *SpecError) Error() string {
	text := "no reason recorded"
	if len(e.Diagnostics) > 0 {
		text = e.Diagnostics[0].String()
	}
	if n := len(e.Diagnostics) - 1; n > 0 {
		text += fmt.Sprintf(" (and %d more)", n)
	}
	return fmt.Sprintf("load CDI spec %q: %s", e.Path, text)
}

// Unwrap is the sentinel.
func (e *SpecError) Unwrap() error {
	if e.Err == nil {
		return errdefs.ErrInvalidArgument
	}
	return e.Err
}
