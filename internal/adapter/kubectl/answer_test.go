// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bytes"
	"slices"
	"testing"
)

// An answer cannot control the terminal, however it is cut into pieces.
func TestAnswerHasNoControlCharacters(t *testing.T) {
	watched := slices.Concat(colorSequences, redrawSequences)
	for name, tc := range map[string]struct {
		text    string
		allowed []string
		want    string
	}{
		"text":             {"a\tb\n\u00e9 \u2192\n", nil, "a\tb\n\u00e9 \u2192\n"},
		"title":            {"fine \x1b]0;title\a", nil, "fine ?]0;title?"},
		"clipboard":        {"\x1b[2J\x1b]52;c;aGk=\x1b\\", colorSequences, "?[2J?]52;c;aGk=?\\"},
		"colour":           {"\x1b[31mERROR\x1b[0m", colorSequences, "\x1b[31mERROR\x1b[0m"},
		"no colour":        {"\x1b[31mERROR\x1b[0m", nil, "?[31mERROR?[0m"},
		"another colour":   {"\x1b[8mhidden", colorSequences, "?[8mhidden"},
		"watch":            {"\x1b[H\x1b[2Ja\r\nb\r\n", watched, "\x1b[H\x1b[2Ja\r\nb\r\n"},
		"cursor up":        {"\x1b[H\x1b[1A\x1b[2K", watched, "\x1b[H?[1A?[2K"},
		"carriage return":  {"denied\rallowed\n", watched, "denied?allowed\n"},
		"backspace":        {"no\b\byes\x7f", watched, "no??yes?"},
		"C1":               {"\u009b2J\x9b2J", watched, "?2J?2J"},
		"direction":        {"\u202eabc\u2066", watched, "?abc?"},
		"not UTF-8":        {"\xff\xc3", nil, "??"},
		"sequence at end":  {"a\x1b[", watched, "a?["},
		"nested sequences": {"\x1b\x1b[31m[31m", watched, "?\x1b[31m[31m"},
	} {
		for size := 1; size <= len(tc.text); size++ {
			var out bytes.Buffer
			w := &answerWriter{out: &out, allowed: tc.allowed}
			for piece := range slices.Chunk([]byte(tc.text), size) {
				if n, err := w.Write(piece); n != len(piece) || err != nil {
					t.Fatal(n, err)
				}
			}
			if err := w.flush(); err != nil || out.String() != tc.want {
				t.Errorf("%s in pieces of %d: %q, %v, want %q", name, size, &out, err, tc.want)
			}
		}
	}
}
