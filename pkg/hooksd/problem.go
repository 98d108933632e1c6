// SPDX-License-Identifier: Apache-2.0

package hooksd

import (
	"cmp"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/wording"
)

// Problem is what is wrong with a hooks.d file or directory. It is an error that
// unwraps to the errdefs sentinel of its cause.
type Problem struct {
	// File is the host path of the file, or of the directory.
	File string
	// Line and Column count from 1; 0 where they are not known.
	Line, Column int
	// Field is the dotted field, such as "when.commands[0]"; empty for the file
	// as a whole.
	Field string
	// Found is the value found, quoted and shortened.
	Found string
	// Rule is what is wanted, and what to do.
	Rule string
	// Warning marks what does not keep the hook from being used.
	Warning bool
	// Elsewhere marks what is right in a directory that only Podman reads.
	Elsewhere bool

	cause error
}

// Error implements error.
func (p *Problem) Error() string {
	return wording.Fault(p.File, p.Line, p.Column, p.Field, p.Found, p.Rule)
}

// Unwrap implements the errors package's protocol.
func (p *Problem) Unwrap() error {
	if p.cause != nil {
		return p.cause
	}
	return errdefs.ErrInvalidArgument
}

// maxProblems bounds what is kept of one file.
const maxProblems = 20

func sortProblems(list []*Problem) {
	slices.SortStableFunc(list, func(a, b *Problem) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), strings.Compare(a.Field, b.Field))
	})
}

func quote(s string) string { return wording.Quote(s, wording.Most) }
