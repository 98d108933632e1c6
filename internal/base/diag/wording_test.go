// SPDX-License-Identifier: Apache-2.0

package diag_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/internal/base/diag"
)

func TestQuoteEscapesAndBoundsText(t *testing.T) {
	for s, want := range map[string]string{
		"":                         `""`,
		"a b":                      `"a b"`,
		"\x1b[2J\n":                `"\x1b[2J\n"`,
		"é":                        `"\u00e9"`,
		strings.Repeat("x", 18):    `"` + strings.Repeat("x", 18) + `"`,
		strings.Repeat("x", 19):    `"` + strings.Repeat("x", 18) + `"... (19 bytes)`,
		strings.Repeat("\x00", 10): `"\x00\x00\x00\x00"... (10 bytes)`,
	} {
		if got := diag.QuoteUpTo(s, 20); got != want {
			t.Errorf("Quote(%q) = %s, want %s", s, got, want)
		}
	}
}

func FuzzQuote(f *testing.F) {
	f.Add("é\xff", 20)
	f.Fuzz(func(t *testing.T, s string, most int) {
		if most < 20 || most > 1000 {
			return
		}
		got := diag.QuoteUpTo(s, most)
		if len(got) > most+len("... (18446744073709551615 bytes)") || strings.ContainsFunc(got, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("Quote(%q, %d) = %s", s, most, got)
		}
	})
}

func TestDiagnosticNamesWhatIsKnown(t *testing.T) {
	for want, got := range map[string]string{
		"f: r":                 (&diag.Diagnostic{File: "f", Line: 0, Column: 0, Field: "", Found: "", Rule: "r"}).Error(),
		"f:3: r":               (&diag.Diagnostic{File: "f", Line: 3, Column: 0, Field: "", Found: "", Rule: "r"}).Error(),
		"f:3:4: a.b: r":        (&diag.Diagnostic{File: "f", Line: 3, Column: 4, Field: "a.b", Found: "", Rule: "r"}).Error(),
		"f:3:4: a: found x: r": (&diag.Diagnostic{File: "f", Line: 3, Column: 4, Field: "a", Found: "x", Rule: "r"}).Error(),
		"found x: r":           (&diag.Diagnostic{File: "", Line: 0, Column: 0, Field: "", Found: "x", Rule: "r"}).Error(),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestNearestFindsMisspelledWords(t *testing.T) {
	keys := []string{"stateDir", "sockets", "kubelet", "io"}
	for word, want := range map[string]string{
		"statedir": "stateDir", "socket": "sockets", "kubelte": "kubelet", "sokcet": "sockets", "so": "", "oi": "", "": "", "IO": "io", "policy": "",
	} {
		if got := diag.Nearest(word, keys...); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", word, got, want)
		}
	}
}

func TestNearestFewOrdersByDistanceAndLength(t *testing.T) {
	names := []string{"v.com/c=gpu10", "v.com/c=gpu1", "v.com/c=gpu0", "v.com/c=mig0", "v.com/c=GPU2", "v.com/d=gpu2"}
	for _, c := range []struct {
		word string
		most int
		want string
	}{
		{"v.com/c=gpu2", 3, "[v.com/c=GPU2 v.com/c=gpu0 v.com/c=gpu1]"},
		{"v.com/c=gpu3", 9, "[v.com/c=gpu0 v.com/c=gpu1 v.com/d=gpu2 v.com/c=gpu10]"},
		{"v.com/c=other", 3, "[]"},
	} {
		if got := fmt.Sprint(diag.NearestFew(c.word, c.most, slices.Values(names))); got != c.want {
			t.Errorf("%s: %s, want %s", c.word, got, c.want)
		}
	}
}

func TestPlainEscapesControlCharacters(t *testing.T) {
	for s, want := range map[string]string{
		"": "", "a é": "a é", "a\tb\n": `a\tb\n`, "\x1b[2J": `\x1b[2J`, "\xff": `\xff`, "\u202e": `\u202e`, "\ufffd": "\ufffd",
	} {
		if got := diag.Plain(s); got != want {
			t.Errorf("Plain(%q) = %q, want %q", s, got, want)
		}
		if got := diag.Excerpt(s, 100); got != want {
			t.Errorf("Excerpt(%q) = %q, want %q", s, got, want)
		}
	}
	if got := diag.Excerpt("ab\x1bcd", 5); got != "ab…" {
		t.Errorf("an escape was cut: %q", got)
	}
}
