// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/wording"
)

// output is the choice of -o.
type output struct{ format string }

// flag adds -o with text and json.
func (o *output) flag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.format, "output", "o", "text", "`format`: text or json")
	completeFlag(cmd, "output", fixedValues("text", "json"))
}

func (o *output) check(cmd *cobra.Command) error {
	if o.format != "text" && o.format != "json" {
		return usagef(cmd, "--output: found %q, want text or json", o.format)
	}
	return nil
}

func (o *output) json() bool { return o.format == "json" }

// writeJSON writes v indented, with a newline at the end.
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// write writes v in JSON, or what text writes, whichever was asked for.
func (o *output) write(w io.Writer, v any, text func(io.Writer) error) error {
	if o.json() {
		return writeJSON(w, v)
	}
	return text(w)
}

// answer ends a command that has written why the answer is no, when it is.
func answer(written error, good bool) error {
	if written == nil && !good {
		return errAnswerNo
	}
	return written
}

// plain is s in one line, without what a terminal might act on.
func plain(s string) string { return wording.Plain(s) }

// quoted is what was found in a file, for a message.
func quoted(s string) string { return wording.Quote(s, wording.Most) }

// plainLines is plain for text whose line ends are meant.
func plainLines(s string) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	for i := range lines {
		lines[i] = plain(lines[i])
	}
	return strings.Join(lines, "\n")
}

// terminalWidth is the width of the terminal that w is, in columns, 0 where it is none: what a program reads is not wrapped.
func terminalWidth(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

// wrapText breaks the lines of a text at spaces, so that with an indent they are at most width columns wide. Further lines have the indent. A width of
// 0, or one that leaves less than 20 columns, breaks none.
func wrapText(text string, width, indent int) string {
	var b strings.Builder
	for i, line := range strings.Split(text, "\n") {
		if i > 0 {
			b.WriteString("\n" + strings.Repeat(" ", indent))
		}
		column := indent
		for j, word := range strings.Split(line, " ") {
			n := utf8.RuneCountInString(word)
			switch {
			case j == 0:
			case width-indent >= 20 && column+1+n > width:
				b.WriteString("\n" + strings.Repeat(" ", indent))
				column = indent
			default:
				b.WriteByte(' ')
				column++
			}
			b.WriteString(word)
			column += n
		}
	}
	return b.String()
}

// table lays out rows in columns, two spaces apart. The last column is as wide
// as it likes.
type table struct {
	rows [][]string
}

func (t *table) add(cells ...string) {
	for i := range cells {
		if cells[i] = plain(cells[i]); cells[i] == "" {
			cells[i] = "-"
		}
	}
	t.rows = append(t.rows, cells)
}

func (t *table) write(b *strings.Builder, indent string) {
	var widths []int
	for _, row := range t.rows {
		for i, c := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	for _, row := range t.rows {
		b.WriteString(indent)
		for i, c := range row {
			b.WriteString(c)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c)+2))
			}
		}
		b.WriteByte('\n')
	}
}
