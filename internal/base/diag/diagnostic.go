// SPDX-License-Identifier: Apache-2.0

package diag

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"
)

// Severity decides whether a faulty file or part of a file can be used.
type Severity string

// An empty severity counts as [SeverityError].
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
)

// Diagnostic is one fault in a file of another author: a CDI spec file, a device-info file, a
// configuration.
type Diagnostic struct {
	// File is the host path; "" if the caller adds it.
	File string `json:"file"`
	// Line and Column count from 1, Column in characters. Both are 0 for the whole file.
	Line   int `json:"line"`
	Column int `json:"column"`
	// Field is the path of the field, such as "devices[2].containerEdits"; "" for the whole file.
	Field string `json:"key"`
	// Found is the value in the file, quoted and shortened; "" for a missing value.
	Found string `json:"found"`
	// Rule is the rule that the field breaks.
	Rule string `json:"rule"`
	// Section is the section of the specification with the rule, including the specification's
	// name; "" for a rule from elsewhere.
	Section string `json:"section,omitempty"`
	// Hint is the remedy; it can be "".
	Hint     string   `json:"hint,omitempty"`
	Severity Severity `json:"severity"`
	// Kind is a sentinel of containerd/errdefs; nil counts as ErrInvalidArgument.
	Kind error `json:"-"`
}

// IsWarning reports whether the faulty part can be used nevertheless.
func (d *Diagnostic) IsWarning() bool { return d.Severity == SeverityWarning }

// Error returns one line with the known parts:
//
//	FILE:LINE:COLUMN: warning: FIELD: found FOUND: RULE (SECTION): HINT
//	FILE:LINE:COLUMN: warning: FIELD: invalid value FOUND: must be … (SECTION): HINT
func (d *Diagnostic) Error() string {
	place := d.File
	if d.Line > 0 {
		place = strings.TrimPrefix(fmt.Sprintf("%s:%d", d.File, d.Line), ":")
		if d.Column > 0 {
			place += fmt.Sprintf(":%d", d.Column)
		}
	}
	text := d.Message()
	if d.IsWarning() {
		text = "warning: " + text
	}
	if place != "" {
		text = place + ": " + text
	}
	return text
}

// Message returns [Diagnostic.Error] without place and severity.
func (d *Diagnostic) Message() string {
	text := d.Rule
	if d.Found != "" {
		text = d.verdict() + d.Found + ": " + text
	}
	if d.Field != "" {
		text = d.Field + ": " + text
	}
	if d.Section != "" {
		text += " (" + d.Section + ")"
	}
	if d.Hint != "" {
		text += ": " + d.Hint
	}
	return text
}

// verdict begins a message about Found. A value that breaks a "must be" rule is invalid. Other
// texts, such as "an array" and "the end of the text", describe the content.
func (d *Diagnostic) verdict() string {
	word, _, _ := strings.Cut(d.Found, ",")
	isValue := strings.ContainsAny(word[:1], "\"'`[{-0123456789") ||
		slices.Contains([]string{"true", "false", "null"}, word)
	if isValue && strings.HasPrefix(d.Rule, "must be ") {
		return "invalid value "
	}
	return "found "
}

// Unwrap returns the sentinel of containerd/errdefs.
func (d *Diagnostic) Unwrap() error { return cmp.Or[error](d.Kind, errdefs.ErrInvalidArgument) }

// List holds the faults of one file, in the order of the file.
type List []*Diagnostic

// Sort sorts the faults by file and place. Faults at one place keep their order.
func (l List) Sort() {
	slices.SortStableFunc(l, func(a, b *Diagnostic) int {
		return cmp.Or(strings.Compare(a.File, b.File), a.Line-b.Line, a.Column-b.Column)
	})
}

// Error joins the faults with "; ".
func (l List) Error() string { return Join(l) }

// Unwrap lists the faults for errors.Is and errors.As.
func (l List) Unwrap() []error { return Errors(l) }

// Join joins the texts of errors with "; ".
func Join[E error](list []E) string {
	texts := make([]string, len(list))
	for i, e := range list {
		texts[i] = e.Error()
	}
	return strings.Join(texts, "; ")
}

// Errors converts errors of one type to []error, the result of an Unwrap method.
func Errors[E error](list []E) []error {
	errs := make([]error, len(list))
	for i, e := range list {
		errs[i] = e
	}
	return errs
}

// Summary returns the first fault, and the number of further ones.
func (l List) Summary() string {
	s := Plain(l[0].Error())
	if more := len(l) - 1; more > 0 {
		s += fmt.Sprintf(" (and %d more)", more)
	}
	return s
}

// WithFile returns copies of the faults with a file name for messages and a severity. They describe
// the content of a file, so they have no Kind.
func (l List) WithFile(file string) List {
	out := make(List, len(l))
	for i, d := range l {
		named := *d
		named.File, named.Kind, named.Severity = file, nil, cmp.Or(d.Severity, SeverityError)
		out[i] = &named
	}
	return out
}

// Unreadable returns the fault of a file that cannot be read. It is errdefs.ErrUnavailable.
func Unreadable(file string, err error) *Diagnostic {
	text := ErrorText(err)
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		text = errno.Error()
	}
	return &Diagnostic{File: file, Rule: "cannot be read: " + text, Severity: SeverityError,
		Kind: errdefs.ErrUnavailable}
}

// InFile returns the diagnostics in an error about a file, or a diagnostic with the reason why the
// file cannot be read.
func InFile(file string, err error) List {
	if _, ok := errors.AsType[*Diagnostic](err); !ok {
		return List{Unreadable(file, err)}
	}
	return All(file, err).WithFile(file)
}

// All lists the diagnostics in err: a List, one Diagnostic, or errors joined by errors.Join. Any
// other error becomes a diagnostic for the whole file; file is used for it only and can be "".
func All(file string, err error) List {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all List
		for _, err := range joined.Unwrap() {
			all = append(all, All(file, err)...)
		}
		return all
	}
	if one, ok := errors.AsType[*Diagnostic](err); ok {
		return List{one}
	}
	return List{{File: file, Rule: err.Error(), Kind: err}}
}
