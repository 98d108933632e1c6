// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/cdiregistry"
	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
	"github.com/jackfield/jackfield/pkg/hooksd"
	"github.com/jackfield/jackfield/pkg/policy"
)

// finding is one thing to say of a file.
type finding struct {
	File     string `json:"file"`
	Line     int    `json:"line"`   // from 1; 0 for the file as a whole
	Column   int    `json:"column"` // from 1, in characters; 0 where it is not known
	Key      string `json:"key"`    // dotted path; "" for the file as a whole
	Found    string `json:"found"`  // as the file has it; "" for what is missing
	Rule     string `json:"rule"`
	Section  string `json:"section,omitempty"` // of the Device Information Specification 1.1.0
	Hint     string `json:"hint,omitempty"`
	Severity string `json:"severity"` // error or warning

	text string // what follows the place
}

const (
	severityError   = "error"
	severityWarning = "warning"
)

// String is one line: FILE:LINE:COLUMN: what is found, and what is wanted.
func (f finding) String() string {
	var b strings.Builder
	b.WriteString(f.File)
	if f.Line > 0 {
		fmt.Fprintf(&b, ":%d", f.Line)
	}
	if f.Column > 0 {
		fmt.Fprintf(&b, ":%d", f.Column)
	}
	b.WriteString(": ")
	if f.Severity == severityWarning {
		b.WriteString("warning: ")
	}
	b.WriteString(f.text)
	return plain(b.String())
}

// fileFinding is about a file as a whole.
func fileFinding(file, severity, found, rule string) finding {
	return finding{File: file, Found: found, Rule: rule, Severity: severity, text: "found " + found + ", want " + rule}
}

// fromDeviceInfo are findings of pkg/deviceinfo.
func fromDeviceInfo(file, severity string, ds deviceinfo.Diagnostics) []finding {
	out := make([]finding, 0, len(ds))
	for _, d := range ds {
		rest := d
		rest.File, rest.Line, rest.Column = "", 0, 0
		out = append(out, finding{File: file, Line: d.Line, Column: d.Column, Key: d.Key, Found: d.Found, Rule: d.Rule,
			Section: d.Section, Hint: d.Hint, Severity: severity, text: rest.Error()})
	}
	return out
}

// fromHooks are findings of pkg/hooksd.
func fromHooks(file string, problems []*hooksd.Problem) []finding {
	out := make([]finding, 0, len(problems))
	for _, p := range problems {
		severity := severityError
		if p.Warning || p.Elsewhere {
			severity = severityWarning
		}
		rest := *p
		rest.File, rest.Line, rest.Column = "", 0, 0
		out = append(out, finding{File: file, Line: p.Line, Column: p.Column, Key: p.Field, Found: p.Found, Rule: p.Rule,
			Severity: severity, text: strings.TrimPrefix(rest.Error(), ": ")})
	}
	return out
}

// fromDeviceInfoError are the findings in an error of pkg/deviceinfo.
func fromDeviceInfoError(file string, err error) []finding {
	var ds deviceinfo.Diagnostics
	if errors.As(err, &ds) {
		return fromDeviceInfo(file, severityError, ds)
	}
	return []finding{cannotRead(file, err)}
}

// fromCDI are findings of pkg/cdiregistry.
func fromCDI(file string, ds []cdiregistry.Diagnostic) []finding {
	out := make([]finding, 0, len(ds))
	for _, d := range ds {
		rest := d
		rest.Severity, rest.Line, rest.Column = cdiregistry.SeverityError, 0, 0
		out = append(out, finding{File: file, Line: d.Line, Column: d.Column, Key: d.Field, Found: d.Found, Rule: d.Rule,
			Severity: d.Severity.String(), text: rest.String()})
	}
	return out
}

// fromConfig are the findings in an error of pkg/config.
func fromConfig(file string, err error) []finding {
	faults := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		faults = joined.Unwrap()
	}
	out := make([]finding, 0, len(faults))
	for _, err := range faults {
		var fault *config.Error
		if !errors.As(err, &fault) {
			out = append(out, cannotRead(file, err))
			continue
		}
		rest := *fault
		rest.File, rest.Line, rest.Column = "", 0, 0
		out = append(out, finding{File: file, Line: fault.Line, Column: fault.Column, Key: fault.Field, Found: fault.Found, Rule: fault.Rule,
			Severity: severityError, text: strings.TrimPrefix(rest.Error(), ": ")})
	}
	return out
}

// fromPolicy are the findings in an error of a configuration's policy.
func fromPolicy(cfg *config.Config, err error) []finding {
	faults := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		faults = joined.Unwrap()
	}
	out := make([]finding, 0, len(faults))
	for _, err := range faults {
		var fault *policy.RuleError
		if !errors.As(err, &fault) {
			out = append(out, cannotRead(cfg.File(), err))
			continue
		}
		out = append(out, configFinding(cfg, severityError, fault.Field, fault.Why))
	}
	return out
}

// configFinding is about a field of a configuration.
func configFinding(cfg *config.Config, severity, field, rule string) finding {
	line, column := cfg.LineColumn(field)
	return finding{File: cfg.File(), Line: line, Column: column, Key: field, Rule: rule, Severity: severity, text: field + ": " + rule}
}

// cannotRead is a file whose content cannot be had.
func cannotRead(file string, err error) finding {
	text := errorText(err)
	var no unix.Errno
	if errors.As(err, &no) {
		text = no.Error()
	}
	f := fileFinding(file, severityError, text, "a file that can be read")
	f.text = "cannot be read: " + text
	return f
}

// notJSON says where data ceases to be JSON, if it does: what nobody recognises is
// mostly broken before the key that tells.
func (f *finding) notJSON(data []byte) {
	var value any
	var syntax *json.SyntaxError
	if !errors.As(json.Unmarshal(data, &value), &syntax) {
		return
	}
	before := data[:min(max(int(syntax.Offset)-1, 0), len(data))]
	if int(syntax.Offset) == len(data) && strings.Contains(syntax.Error(), "unexpected end") {
		before = data
	}
	f.Line = 1 + bytes.Count(before, []byte("\n"))
	f.Column = 1 + utf8.RuneCount(before[1+bytes.LastIndexByte(before, '\n'):])
	f.text += "; here it ceases to be JSON: " + syntax.Error()
	f.Rule += "; JSON: " + syntax.Error()
}
