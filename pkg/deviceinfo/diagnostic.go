// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/wording"
)

// Diagnostic is one finding in a device-info map. It unwraps to
// errdefs.ErrInvalidArgument.
type Diagnostic struct {
	File string `json:"file,omitempty"`
	// Line and Column are where the finding is, both from 1; Column counts
	// characters, not bytes. Both are 0 for a finding about the file as a whole.
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`
	// Key is the dotted path of the key, such as "vdpa.pci-address"; "" for the
	// map as a whole.
	Key string `json:"key,omitempty"`
	// Found is what the source holds there, as it is written there, shortened
	// and without control characters; "" when something is missing.
	Found string `json:"found,omitempty"`
	// Rule is what is wanted instead.
	Rule string `json:"rule"`
	// Section of the Device Information Specification 1.1.0 the rule comes from,
	// such as "3.1.4.4"; "" when it comes from elsewhere.
	Section string `json:"section,omitempty"`
	// Hint says what to change; it may be "".
	Hint string `json:"hint,omitempty"`
}

// Error is one line:
//
//	FILE:LINE:COLUMN: KEY: found FOUND, want RULE (Device Information Specification 1.1.0, §SECTION): HINT
func (d *Diagnostic) Error() string {
	var b strings.Builder
	if d.File != "" {
		b.WriteString(wording.Plain(d.File))
		if d.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", d.Line, d.Column)
		}
		b.WriteString(": ")
	} else if d.Line > 0 {
		fmt.Fprintf(&b, "line %d column %d: ", d.Line, d.Column)
	}
	if d.Key != "" {
		b.WriteString(d.Key)
		b.WriteString(": ")
	}
	if d.Found == "" {
		b.WriteString("missing")
	} else {
		b.WriteString("found ")
		b.WriteString(d.Found)
	}
	b.WriteString(", want ")
	b.WriteString(d.Rule)
	if d.Section != "" {
		fmt.Fprintf(&b, " (Device Information Specification %s, §%s)", Version110, d.Section)
	}
	if d.Hint != "" {
		b.WriteString(": ")
		b.WriteString(d.Hint)
	}
	return b.String()
}

// Unwrap is errdefs.ErrInvalidArgument.
func (d *Diagnostic) Unwrap() error { return errdefs.ErrInvalidArgument }

// Diagnostics are the findings of one map, sorted by position. As an error they
// unwrap to each *Diagnostic.
type Diagnostics []Diagnostic

// Error joins the findings with "; ".
func (ds Diagnostics) Error() string {
	texts := make([]string, len(ds))
	for i := range ds {
		texts[i] = ds[i].Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap lists the findings for errors.Is and errors.As.
func (ds Diagnostics) Unwrap() []error {
	errs := make([]error, len(ds))
	for i := range ds {
		errs[i] = &ds[i]
	}
	return errs
}

// maxFindings bounds what one file can make us say.
const maxFindings = 32

// finding is a Diagnostic whose place is still an offset in bytes.
type finding struct {
	off                             int
	key, found, rule, section, hint string
}

// collector gathers the findings of one source.
type collector struct {
	errs, warns []finding
}

func (c *collector) add(f finding)  { c.errs = append(c.errs, f) }
func (c *collector) warn(f finding) { c.warns = append(c.warns, f) }
func (c *collector) full() bool     { return len(c.errs) > maxFindings }

// err is what was collected, or nil.
func (c *collector) err(file, src string) error {
	if len(c.errs) == 0 {
		return nil
	}
	return diagnostics(c.errs, file, src)
}

func diagnostics(fs []finding, file, src string) Diagnostics {
	if len(fs) == 0 {
		return nil
	}
	slices.SortStableFunc(fs, func(a, b finding) int { return a.off - b.off })
	more := len(fs) > maxFindings
	if more {
		fs = fs[:maxFindings]
	}
	at := position{src: src, line: 1, column: 1}
	out := make(Diagnostics, 0, len(fs)+1)
	for _, f := range fs {
		at.advance(f.off)
		out = append(out, Diagnostic{
			File: file, Line: at.line, Column: at.column,
			Key: f.key, Found: f.found, Rule: f.rule, Section: f.section, Hint: f.hint,
		})
	}
	if more {
		out = append(out, Diagnostic{File: file, Found: fmt.Sprintf("more than %d mistakes", maxFindings),
			Rule: "a device-info map", Section: "4", Hint: "the other mistakes are not shown"})
	}
	return out
}

// position turns ascending offsets into lines and columns in one pass.
type position struct {
	src               string
	off, line, column int
}

func (p *position) advance(to int) {
	for p.off < to && p.off < len(p.src) {
		r, n := utf8.DecodeRuneInString(p.src[p.off:])
		p.off += n
		if r == '\n' {
			p.line, p.column = p.line+1, 1
		} else {
			p.column++
		}
	}
}

// maxFound is the number of characters that a message spends on what it found.
const maxFound = 80

// excerpt is source text made safe for a message.
func excerpt(s string) string { return wording.Excerpt(s, maxFound) }
