// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"

	"github.com/jackfield/jackfield/internal/diag"
)

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
