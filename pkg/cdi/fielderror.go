// SPDX-License-Identifier: Apache-2.0

package cdi

import "github.com/jackfield/jackfield/internal/base/diag"

// FieldError is one fault, or one warning, in a spec file. It unwraps to a sentinel of containerd/errdefs.
type FieldError struct {
	Line, Column int    // from 1; Column counts characters; 0 for the whole file
	Field        string // such as "devices[0].containerEdits.env[0]"; "" for the whole file
	Found        string // the value in the file, quoted and shortened; "" for a missing value
	Rule         string // the rule that the value violates
	Hint         string // remedy; can be ""
	Warning      bool   // the file is usable all the same

	kind error
}

// Error is one line:
//
//	LINE:COLUMN: warning: FIELD: found FOUND: RULE: HINT
func (e *FieldError) Error() string { return e.diagnostic().Error() }

// Unwrap supports [errors.Is] and [errors.As].
func (e *FieldError) Unwrap() error { return e.diagnostic() }

// diagnostic returns the fault in the type of all messages of Jackfield.
func (e *FieldError) diagnostic() *diag.Diagnostic {
	d := &diag.Diagnostic{Line: e.Line, Column: e.Column, Field: e.Field, Found: e.Found, Rule: e.Rule, Hint: e.Hint,
		Kind: e.kind}
	if e.Warning {
		d.Severity = diag.SeverityWarning
	}
	return d
}

// FieldErrors are the faults and warnings of one spec file, in the order of the file. As an error they unwrap to each
// [*FieldError].
type FieldErrors []*FieldError

// Error joins the faults with "; ".
func (l FieldErrors) Error() string { return diag.Join(l) }

// Unwrap supports [errors.Is] and [errors.As].
func (l FieldErrors) Unwrap() []error { return diag.Errors(l) }

// fieldErrors returns diagnostics in the public type.
func fieldErrors(list []*diag.Diagnostic) FieldErrors {
	errs := make(FieldErrors, len(list))
	for i, d := range list {
		errs[i] = &FieldError{Line: d.Line, Column: d.Column, Field: d.Field, Found: d.Found, Rule: d.Rule, Hint: d.Hint,
			Warning: d.IsWarning(), kind: d.Kind}
	}
	return errs
}
