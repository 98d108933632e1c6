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

// Severity says whether a fault keeps the file, or the part at fault, from being used.
type Severity string

// An empty severity counts as [SeverityError].
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
)

// Diagnostic is one fault in something that others wrote: a CDI spec file, a device-info
// file, a configuration.
type Diagnostic struct {
	// File is the host path; "" where the caller knows it.
	File string `json:"file"`
	// Line and Column count from 1, Column in characters. Both are 0 for the whole file.
	Line   int `json:"line"`
	Column int `json:"column"`
	// Field is the path of the field, such as "devices[2].containerEdits"; "" for the
	// whole file.
	Field string `json:"key"`
	// Found is the value as the file has it, quoted and shortened; "" where nothing is.
	Found string `json:"found"`
	// Rule is what the field must be.
	Rule string `json:"rule"`
	// Section is the section of the specification that has the rule, with the
	// specification's name; "" where the rule comes from elsewhere.
	Section string `json:"section,omitempty"`
	// Hint says what to change; it may be "".
	Hint     string   `json:"hint,omitempty"`
	Severity Severity `json:"severity"`
	// Kind is a sentinel of containerd/errdefs; nil counts as ErrInvalidArgument.
	Kind error `json:"-"`
}

// IsWarning reports whether what is at fault can be used all the same.
func (d *Diagnostic) IsWarning() bool { return d.Severity == SeverityWarning }

// Error is one line, with what is known of it:
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

// Message is [Diagnostic.Error] without the place and the severity.
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

// verdict begins a message about Found: a value that must be another one is invalid. Other texts, such as "an array" and
// "the end of the text", describe the content.
func (d *Diagnostic) verdict() string {
	word, _, _ := strings.Cut(d.Found, ",")
	isValue := strings.ContainsAny(word[:1], "\"'`[{-0123456789") || slices.Contains([]string{"true", "false", "null"}, word)
	if isValue && strings.HasPrefix(d.Rule, "must be ") {
		return "invalid value "
	}
	return "found "
}

// Unwrap returns the sentinel of containerd/errdefs.
func (d *Diagnostic) Unwrap() error { return cmp.Or[error](d.Kind, errdefs.ErrInvalidArgument) }

// List is the faults of one file, in the order of the file.
type List []*Diagnostic

// Sort sorts the faults by their files and places. Those at one place keep their order.
func (l List) Sort() {
	slices.SortStableFunc(l, func(a, b *Diagnostic) int {
		return cmp.Or(strings.Compare(a.File, b.File), a.Line-b.Line, a.Column-b.Column)
	})
}

// Error joins the faults with "; ".
func (l List) Error() string {
	texts := make([]string, len(l))
	for i, d := range l {
		texts[i] = d.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap lists the faults for errors.Is and errors.As.
func (l List) Unwrap() []error {
	errs := make([]error, len(l))
	for i, d := range l {
		errs[i] = d
	}
	return errs
}

// Summary is the first of the faults, and how many more there are.
func (l List) Summary() string {
	s := Plain(l[0].Error())
	if more := len(l) - 1; more > 0 {
		s += fmt.Sprintf(" (and %d more)", more)
	}
	return s
}

// WithFile returns copies of the faults with the name that messages have for their file, and a severity.
// They are about what the file holds, and so have no Kind.
func (l List) WithFile(file string) List {
	out := make(List, len(l))
	for i, d := range l {
		named := *d
		named.File, named.Kind, named.Severity = file, nil, cmp.Or(d.Severity, SeverityError)
		out[i] = &named
	}
	return out
}

// Unreadable is about a file that cannot be read. It is errdefs.ErrUnavailable.
func Unreadable(file string, err error) *Diagnostic {
	text := ErrorText(err)
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		text = errno.Error()
	}
	return &Diagnostic{File: file, Rule: "cannot be read: " + text, Severity: SeverityError,
		Kind: errdefs.ErrUnavailable}
}

// InFile returns the diagnostics in an error about a file, which messages name, or one that says why the file
// cannot be read.
func InFile(file string, err error) List {
	if _, ok := errors.AsType[*Diagnostic](err); !ok {
		return List{Unreadable(file, err)}
	}
	return All(file, err).WithFile(file)
}

// All lists the diagnostics that err consists of: a List, one Diagnostic, or errors joined
// by errors.Join. An error that is no diagnostic becomes one for the whole of file.
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
