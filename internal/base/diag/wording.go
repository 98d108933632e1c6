// SPDX-License-Identifier: Apache-2.0

package diag

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxQuoted is the limit of [Quote] in bytes. It fits the longest path of a UNIX socket. Messages
// end up in a pod's events and in logs.
const MaxQuoted = 128

// Quote is [QuoteUpTo] with the limit for most messages.
func Quote(s string) string { return QuoteUpTo(s, MaxQuoted) }

// QuoteUpTo returns s quoted, in ASCII. If that exceeds most bytes, including quotation marks and
// escapes, it returns the beginning and the length of s.
func QuoteUpTo(s string, most int) string {
	cut := min(len(s), most-2)
	for {
		for cut < len(s) && cut > 0 && !utf8.RuneStart(s[cut]) {
			cut--
		}
		q := strconv.QuoteToASCII(s[:cut])
		if len(q) <= most {
			if cut < len(s) {
				q += "... (" + strconv.Itoa(len(s)) + " bytes)"
			}
			return q
		}
		cut -= (len(q) - most + 9) / 10
	}
}

// Count returns "1 device" or "2 devices".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// YAMLError converts an error of a YAML parser to a diagnostic with its line.
func YAMLError(err error) *Diagnostic {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	d := &Diagnostic{}
	place, rest, _ := strings.Cut(text, ": ")
	if n, err := strconv.Atoi(strings.TrimPrefix(place, "line ")); err == nil && strings.HasPrefix(place, "line ") {
		d.Line, text = n, rest
	}
	d.Rule = "not YAML: " + Excerpt(text, 200)
	return d
}
