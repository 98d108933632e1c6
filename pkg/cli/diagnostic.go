// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/diag"
	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/hooksd"
)

// diagnostic is [diag.Diagnostic] with the JSON keys of -o json, of which most are never left out.
type diagnostic struct {
	File     string        `json:"file"`
	Line     int           `json:"line"`
	Column   int           `json:"column"`
	Field    string        `json:"key"`
	Found    string        `json:"found"`
	Rule     string        `json:"rule"`
	Section  string        `json:"section,omitempty"`
	Hint     string        `json:"hint,omitempty"`
	Severity diag.Severity `json:"severity"`
	Kind     error         `json:"-"`
}

// String is one line: FILE:LINE:COLUMN: what is found, and what is wanted.
func (d diagnostic) String() string { return plain((*diag.Diagnostic)(&d).Error()) }

// firstText is the first of some diagnostics, and how many more there are.
func firstText(all []diagnostic) string {
	s := all[0].String()
	if more := len(all) - 1; more > 0 {
		s += fmt.Sprintf(" (and %d more)", more)
	}
	return s
}

// fileDiagnostic is about a file as a whole.
func fileDiagnostic(file string, severity diag.Severity, found, rule string) diagnostic {
	return diagnostic{File: file, Found: found, Rule: rule, Severity: severity}
}

// cannotRead is about a file whose content cannot be read.
func cannotRead(file string, err error) diagnostic {
	text := diag.ErrorText(err)
	var no unix.Errno
	if errors.As(err, &no) {
		text = no.Error()
	}
	d := fileDiagnostic(file, diag.SeverityError, "", "cannot be read: "+text)
	d.Kind = errNoAnswer
	return d
}

// diagnosticsOf returns the diagnostics in an error about a file. file is the file's name in
// messages.
func diagnosticsOf(file string, err error) []diagnostic {
	var list diag.List
	var one *diag.Diagnostic
	switch {
	case errors.As(err, &list):
		return diagnosticsInFile(file, list)
	case errors.As(err, &one):
		return diagnosticsInFile(file, diag.All(file, err))
	}
	return []diagnostic{cannotRead(file, err)}
}

// diagnosticsInFile returns diagnostics with the file's name in messages.
func diagnosticsInFile(file string, all []*diag.Diagnostic) []diagnostic {
	out := make([]diagnostic, len(all))
	for i, d := range all {
		out[i] = diagnostic(*d)
		out[i].File, out[i].Kind = file, nil
		if d.Severity == "" {
			out[i].Severity = diag.SeverityError
		}
	}
	return out
}

// hookDiagnostics returns the diagnostics of a hooks.d file. A stage that only Podman knows is a warning:
// the file may be for Podman.
func hookDiagnostics(file string, faults diag.List) []diagnostic {
	out := diagnosticsInFile(file, faults)
	for i, f := range faults {
		if errors.Is(f, hooksd.ErrPodmanStage) {
			out[i].Severity = diag.SeverityWarning
		}
	}
	return out
}

// configDiagnostic is about a field of a configuration.
func configDiagnostic(cfg *config.Config, severity diag.Severity, field, rule string) diagnostic {
	line, column := cfg.LineColumn(field)
	return diagnostic{File: cfg.File(), Line: line, Column: column, Field: field, Rule: rule, Severity: severity}
}
