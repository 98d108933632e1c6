// SPDX-License-Identifier: Apache-2.0

package diag

import (
	"cmp"
	"iter"
	"slices"
	"strings"
)

// maxEdits is the largest distance between a word and the candidate that was probably meant.
const maxEdits = 2

// Nearest returns the candidate that word was probably meant to be: equal except for case, or the
// closest within two edits. If no candidate is similar, it returns "".
func Nearest(word string, candidates ...string) string {
	if near := NearestFew(word, 1, slices.Values(candidates)); len(near) > 0 {
		return near[0]
	}
	return ""
}

// Suggest returns "; did you mean CANDIDATE?" for the end of a message, or "" if no candidate is
// similar to word.
func Suggest(word string, candidates ...string) string {
	if near := Nearest(word, candidates...); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
}

// UnknownKey returns the rule that an unknown key of an object breaks. known are the object's keys.
func UnknownKey(key string, known ...string) string {
	return "unknown key " + Quote(key) + "; the keys here are " + strings.Join(known, ", ") + Suggest(key, known...)
}

// Alternatives lists the existing names, with Suggest, for the end of a message about a name that
// does not exist.
func Alternatives(wrong string, names []string) string {
	if len(names) == 0 {
		return "; it has none"
	}
	return "; it has " + strings.Join(names, ", ") + Suggest(wrong, names...)
}

// NearestFew returns up to most similar candidates by the rule of [Nearest]: the nearest first,
// then the shortest, then in alphabetical order.
func NearestFew(word string, most int, candidates iter.Seq[string]) []string {
	edits := func(c string) int {
		if strings.EqualFold(word, c) {
			return 0
		}
		return distance(word, c, maxEdits)
	}
	var found []string
	for c := range candidates {
		if n := edits(c); n == 0 || n <= maxEdits && n < len(c)-1 {
			found = append(found, c)
		}
	}
	slices.SortFunc(found, func(a, b string) int {
		return cmp.Or(edits(a)-edits(b), len(a)-len(b), strings.Compare(a, b))
	})
	return found[:min(len(found), most)]
}

// distance returns the number of single-byte insertions, deletions, replacements and swaps of
// neighbours between a and b, or most+1 if it exceeds most. Its time grows with 4^most.
func distance(a, b string, most int) int {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	switch {
	case len(a) == 0 || len(b) == 0:
		return min(len(a)+len(b), most+1)
	case most == 0:
		return 1
	}
	rest := min(distance(a[1:], b, most-1), distance(a, b[1:], most-1), distance(a[1:], b[1:], most-1))
	if len(a) > 1 && len(b) > 1 && a[0] == b[1] && a[1] == b[0] {
		rest = min(rest, distance(a[2:], b[2:], most-1))
	}
	return 1 + rest
}
