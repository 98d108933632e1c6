// SPDX-License-Identifier: Apache-2.0

package hooksd

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
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

	cause error
}

// Error implements error.
func (p *Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		b.WriteString(":" + strconv.Itoa(p.Line) + ":" + strconv.Itoa(p.Column))
	}
	b.WriteString(": ")
	if p.Field != "" {
		b.WriteString(p.Field + ": ")
	}
	if p.Found != "" {
		b.WriteString("found " + p.Found + ": ")
	}
	b.WriteString(p.Rule)
	return b.String()
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

// quote returns s quoted, in ASCII and of bounded length.
func quote(s string) string {
	const most = 96
	if len(s) > most {
		return strconv.QuoteToASCII(s[:most]) + "... (" + strconv.Itoa(len(s)) + " bytes)"
	}
	return strconv.QuoteToASCII(s)
}
