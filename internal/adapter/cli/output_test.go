// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"strings"
	"testing"
)

func TestPlainEscapesForTerminals(t *testing.T) {
	for in, want := range map[string]string{
		"a “b” ü":           "a “b” ü",
		"\x1b[31mred\a":     `\x1b[31mred\x07`,
		"two\nlines\tand":   `two\nlines\tand`,
		"not \xff UTF-8":    `not \xff UTF-8`,
		"turned \u202e":     `turned \u202e`,
		"\u00a0":            `\u00a0`,
		"\U000e0001 a tag":  `\ue0001 a tag`,
		"a replaced \ufffd": "a replaced \ufffd",
	} {
		if got := plain(in); got != want {
			t.Errorf("plain(%q) = %q, want %q", in, got, want)
		}
	}
	if got, want := plainLines("a\x07\nb\n"), "a\\x07\nb"; got != want {
		t.Errorf("plainLines: got %q, want %q", got, want)
	}
}

func TestTableAlignsColumns(t *testing.T) {
	tab := &table{}
	tab.addRow("NAME", "KIND", "FILE")
	tab.addRow("ü", "", "/a b")
	tab.addRow("longer", "x", "/c\n")
	want := " NAME    KIND  FILE\n ü       -     /a b\n longer  x     /c\\n\n"
	if got := tab.formatText(" "); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A variable or annotation of a CDI file may have any text.
func TestYAMLHoldsLinesThatBeginWithTab(t *testing.T) {
	var out bytes.Buffer
	err := writeYAML(&out, strings.NewReader(`{"value": "\ta\nb"}`))
	if want := `value: "\ta\nb"` + "\n"; err != nil || out.String() != want {
		t.Errorf("found %q, %v, want %q", out.String(), err, want)
	}
}
