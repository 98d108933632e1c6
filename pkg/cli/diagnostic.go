// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"

	"github.com/jackfield/jackfield/internal/diag"
)

// firstText is the first of some diagnostics, and how many more there are.
func firstText(all diag.List) string {
	s := plain(all[0].Error())
	if more := len(all) - 1; more > 0 {
		s += fmt.Sprintf(" (and %d more)", more)
	}
	return s
}

// diagnosticsOf returns the diagnostics in an error about a file. file is the file's name in
// messages.
func diagnosticsOf(file string, err error) diag.List {
	var one *diag.Diagnostic
	if !errors.As(err, &one) {
		return diag.List{diag.Unreadable(file, err)}
	}
	return diag.All(file, err).WithFile(file)
}

// printDiagnostics prints each diagnostic in an error about a file on a line of its own, and returns
// errAnswerNo. It returns any other error as it is.
func printDiagnostics(env Env, file string, err error) error {
	var list diag.List
	if !errors.As(err, &list) {
		return err
	}
	for _, d := range list.WithFile(file) {
		env.message("%s", d)
	}
	return errAnswerNo
}
