// SPDX-License-Identifier: Apache-2.0

package wording

import (
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

// Fault is "FILE:LINE:COLUMN: FIELD: found FOUND: RULE", as far as each is known: lines
// and columns count from 1.
func Fault(file string, line, column int, field, found, rule string) string {
	if line > 0 {
		file += ":" + strconv.Itoa(line)
	}
	if column > 0 {
		file += ":" + strconv.Itoa(column)
	}
	return file + ": " + Field(field, found, rule)
}

// Field is "FIELD: found FOUND: RULE", as far as each is known.
func Field(field, found, rule string) string {
	var b strings.Builder
	if field != "" {
		b.WriteString(field + ": ")
	}
	if found != "" {
		b.WriteString("found " + found + ": ")
	}
	b.WriteString(rule)
	return b.String()
}

// Nearest is the candidate that word was probably meant to be: the same but for case,
// or the closest within two edits; "" where none is like it.
func Nearest(word string, candidates ...string) string {
	best, at := "", 3
	for _, c := range candidates {
		if strings.EqualFold(word, c) {
			return c
		}
		if len(word) > len(c)+2 || len(c) > len(word)+2 {
			continue
		}
		if d := distance(word, c); d < at && d < len(c)-1 {
			best, at = c, d
		}
	}
	return best
}

// distance is the number of single-byte insertions, deletions and replacements between
// a and b. Both are short; see Nearest.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
