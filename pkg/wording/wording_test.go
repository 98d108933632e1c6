// SPDX-License-Identifier: Apache-2.0

package wording_test

import (
	"strings"
	"testing"

	"github.com/jackfield/jackfield/pkg/wording"
)

func TestQuote(t *testing.T) {
	for s, want := range map[string]string{
		"":                         `""`,
		"a b":                      `"a b"`,
		"\x1b[2J\n":                `"\x1b[2J\n"`,
		"é":                        `"\u00e9"`,
		strings.Repeat("x", 18):    `"` + strings.Repeat("x", 18) + `"`,
		strings.Repeat("x", 19):    `"` + strings.Repeat("x", 18) + `"... (19 bytes)`,
		strings.Repeat("\x00", 10): `"\x00\x00\x00\x00"... (10 bytes)`,
	} {
		if got := wording.Quote(s, 20); got != want {
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
		got := wording.Quote(s, most)
		if len(got) > most+len("... (18446744073709551615 bytes)") || strings.ContainsFunc(got, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("Quote(%q, %d) = %s", s, most, got)
		}
	})
}

func TestFault(t *testing.T) {
	for want, got := range map[string]string{
		"f: r":                 wording.Fault("f", 0, 0, "", "", "r"),
		"f:3: r":               wording.Fault("f", 3, 0, "", "", "r"),
		"f:3:4: a.b: r":        wording.Fault("f", 3, 4, "a.b", "", "r"),
		"f:3:4: a: found x: r": wording.Fault("f", 3, 4, "a", "x", "r"),
		"found x: r":           wording.Field("", "x", "r"),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestNearest(t *testing.T) {
	keys := []string{"stateDir", "sockets", "kubelet", "io"}
	for word, want := range map[string]string{
		"statedir": "stateDir", "socket": "sockets", "kubelte": "kubelet", "so": "", "oi": "", "": "", "IO": "io", "policy": "",
	} {
		if got := wording.Nearest(word, keys...); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", word, got, want)
		}
	}
}

func TestPlain(t *testing.T) {
	for s, want := range map[string]string{
		"": "", "a é": "a é", "a\tb\n": `a\tb\n`, "\x1b[2J": `\x1b[2J`, "\xff": `\xff`, "\u202e": `\u202e`, "\ufffd": "\ufffd",
	} {
		if got := wording.Plain(s); got != want {
			t.Errorf("Plain(%q) = %q, want %q", s, got, want)
		}
		if got := wording.Excerpt(s, 100); got != want {
			t.Errorf("Excerpt(%q) = %q, want %q", s, got, want)
		}
	}
	if got := wording.Excerpt("ab\x1bcd", 5); got != "ab…" {
		t.Errorf("an escape was cut: %q", got)
	}
}
