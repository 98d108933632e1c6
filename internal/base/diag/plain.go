// SPDX-License-Identifier: Apache-2.0

package diag

import (
	"fmt"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Plain returns s in one line that is safe for a terminal: control characters, invisible
// characters, characters that reorder text, and invalid UTF-8 are escaped.
func Plain(s string) string { return Excerpt(s, math.MaxInt) }

// MaxExcerpt is the limit of [Excerpt] for the text of another program.
const MaxExcerpt = 400

// Excerpt is [Plain] for the beginning of s, up to most characters, with "…" for the rest.
func Excerpt(s string, most int) string {
	var b strings.Builder
	for n := 0; len(s) > 0; {
		shown, size := escapeFirst(s)
		if n += utf8.RuneCountInString(shown); n > most {
			b.WriteString("…")
			break
		}
		b.WriteString(shown)
		s = s[size:]
	}
	return b.String()
}

// escapeFirst returns the first character of s in its printed form, and its size in s.
func escapeFirst(s string) (string, int) {
	r, size := utf8.DecodeRuneInString(s)
	// Line feeds and tabs keep their familiar escapes. Every other unsafe character is printed by its number, so
	// that the text shows which character it was.
	switch {
	case r == utf8.RuneError && size <= 1:
		return fmt.Sprintf(`\x%02x`, s[0]), 1
	case r == '\n':
		return `\n`, size
	case r == '\t':
		return `\t`, size
	case isUnsafe(r) && r < 0x80:
		return fmt.Sprintf(`\x%02x`, r), size
	case isUnsafe(r):
		return fmt.Sprintf(`\u%04x`, r), size
	}
	return s[:size], size
}

func isUnsafe(r rune) bool { return r != ' ' && !unicode.IsPrint(r) }
