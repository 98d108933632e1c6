// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/jackfield/jackfield/internal/base/diag"
)

// maxFieldErrors bounds the faults of one file.
const maxFieldErrors = 32

// FieldError is one fault, or one warning, in a device-info map. It unwraps to
// errdefs.ErrInvalidArgument.
type FieldError struct {
	File         string // path, or the name that the caller of [Parse] chose
	Line, Column int    // from 1; Column counts characters; 0 for the whole file
	Field        string // such as "vdpa.pci-address"; "" for the whole file
	Found        string // the value in the file, quoted and shortened; "" for a missing value
	Rule         string // the rule that the value violates
	Section      string // section of the specification that has the rule; "" for other rules
	Hint         string // remedy; can be ""
	Warning      bool   // the map is valid all the same
}

// Error is one line:
//
//	FILE:LINE:COLUMN: warning: FIELD: found FOUND: RULE (SECTION): HINT
func (e *FieldError) Error() string { return e.diagnostic().Error() }

// Unwrap supports [errors.Is] and [errors.As].
func (e *FieldError) Unwrap() error { return e.diagnostic() }

// diagnostic returns the fault in the type of all messages of Jackfield.
func (e *FieldError) diagnostic() *diag.Diagnostic {
	d := &diag.Diagnostic{File: e.File, Line: e.Line, Column: e.Column, Field: e.Field,
		Found: e.Found, Rule: e.Rule, Section: e.Section, Hint: e.Hint}
	if e.Warning {
		d.Severity = diag.SeverityWarning
	}
	return d
}

// FieldErrors are the faults of one map, in the order of the file. As an error they unwrap
// to each [*FieldError].
type FieldErrors []*FieldError

// Error joins the faults with "; ".
func (l FieldErrors) Error() string { return diag.Join(l) }

// Unwrap supports [errors.Is] and [errors.As].
func (l FieldErrors) Unwrap() []error { return diag.Errors(l) }

// inOrder sorts faults by their place in the file, and bounds their number.
func inOrder(all FieldErrors) FieldErrors {
	slices.SortStableFunc(all, func(a, b *FieldError) int {
		return cmp.Or(a.Line-b.Line, a.Column-b.Column)
	})
	if len(all) <= maxFieldErrors {
		return all
	}
	return append(all[:maxFieldErrors:maxFieldErrors], &FieldError{
		File: all[0].File, Found: fmt.Sprintf("more than %d faults", maxFieldErrors),
		Rule: "must be a device-info map", Section: inSection("4"), Hint: "the other faults are not shown"})
}

// inSection returns the text of [FieldError.Section] for a section number.
func inSection(number string) string {
	return "Device Information Specification " + Version + ", §" + number
}

// excerpt returns source text with the length and the characters that a message can have.
func excerpt(s string) string { return diag.Excerpt(s, 80) }
