// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/diag"
	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/hooksd"
)

// firstText is the first of some diagnostics, and how many more there are.
func firstText(all diag.List) string {
	s := plain(all[0].Error())
	if more := len(all) - 1; more > 0 {
		s += fmt.Sprintf(" (and %d more)", more)
	}
	return s
}

// fileDiagnostic is about a file as a whole.
func fileDiagnostic(file string, severity diag.Severity, found, rule string) *diag.Diagnostic {
	return &diag.Diagnostic{File: file, Found: found, Rule: rule, Severity: severity}
}

// cannotRead is about a file whose content cannot be read.
func cannotRead(file string, err error) *diag.Diagnostic {
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
func diagnosticsOf(file string, err error) diag.List {
	var list diag.List
	var one *diag.Diagnostic
	switch {
	case errors.As(err, &list):
		return diagnosticsInFile(file, list)
	case errors.As(err, &one):
		return diagnosticsInFile(file, diag.All(file, err))
	}
	return diag.List{cannotRead(file, err)}
}

// printDiagnostics prints each diagnostic in an error about a file on a line of its own, and returns
// errAnswerNo. It returns any other error as it is.
func printDiagnostics(env Env, file string, err error) error {
	var list diag.List
	if !errors.As(err, &list) {
		return err
	}
	for _, d := range diagnosticsInFile(file, list) {
		env.message("%s", d)
	}
	return errAnswerNo
}

// diagnosticsInFile returns diagnostics with the file's name in messages, and a severity. A stage of a hook
// that only Podman knows is a warning: the file may be for Podman.
func diagnosticsInFile(file string, all diag.List) diag.List {
	out := make(diag.List, len(all))
	for i, d := range all {
		named := *d
		named.File, named.Kind, named.Severity = file, nil, cmp.Or(d.Severity, diag.SeverityError)
		if errors.Is(d, hooksd.ErrPodmanStage) {
			named.Severity = diag.SeverityWarning
		}
		out[i] = &named
	}
	return out
}

// configDiagnostic is about a field of a configuration.
func configDiagnostic(cfg *config.Config, severity diag.Severity, field, rule string) *diag.Diagnostic {
	line, column := cfg.LineColumn(field)
	return &diag.Diagnostic{File: cfg.File(), Line: line, Column: column, Field: field, Rule: rule, Severity: severity}
}
