// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
)

func TestPlain(t *testing.T) {
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

func TestTable(t *testing.T) {
	tab := &table{}
	tab.add("NAME", "KIND", "FILE")
	tab.add("ü", "", "/a b")
	tab.add("longer", "x", "/c\n")
	var b strings.Builder
	tab.write(&b, " ")
	want := " NAME    KIND  FILE\n ü       -     /a b\n longer  x     /c\\n\n"
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}
