// SPDX-License-Identifier: Apache-2.0

package diag

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Most is the length that a quoted text has at most in most messages, in bytes. The
// message ends in an event of a pod and in a log.
const Most = 96

// Quote is s quoted, in ASCII; of a longer one than most bytes, with its quotation
// marks and escapes, the beginning and how long it is.
func Quote(s string, most int) string {
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

// Count is "1 device" or "2 devices".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// YAMLError returns the error of a YAML parser with its line.
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
