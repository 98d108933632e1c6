// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"cmp"
	"strings"
)

// nearest collects the names that a word may have been meant for: by edit
// distance, case aside, then in natural order.
type nearest struct {
	word  string
	limit int
	found first[near]
}

type near struct {
	name string
	far  int
}

func newNearest(word string, most int) *nearest {
	return &nearest{word: strings.ToLower(word), limit: 1 + len(word)/4, found: first[near]{most: most, before: func(a, b near) int {
		return cmp.Or(a.far-b.far, naturalCompare(a.name, b.name))
	}}}
}

func (n *nearest) add(name string) {
	if d := distance(n.word, strings.ToLower(name), n.limit); d <= n.limit {
		n.found.add(near{name, d})
	}
}

func (n *nearest) names() []string {
	var out []string
	for _, f := range n.found.list {
		out = append(out, f.name)
	}
	return out
}

// distance is the number of bytes to insert, delete, replace or swap with their
// neighbour between a and b, or more than limit.
func distance(a, b string, limit int) int {
	if len(a)-len(b) > limit || len(b)-len(a) > limit {
		return limit + 1
	}
	var buf [3][65]int
	if len(b) > 64 {
		return limit + 1
	}
	before, last, row := buf[0][:], buf[1][:], buf[2][:]
	for j := range len(b) + 1 {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		best := i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
			best = min(best, row[j])
		}
		if best > limit {
			return limit + 1
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

// naturalCompare orders names with numbers in them by the numbers: 2 before 10.
func naturalCompare(a, b string) int {
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		if isDigit(a[i]) && isDigit(b[j]) {
			x, y := digits(a[i:]), digits(b[j:])
			i += len(x)
			j += len(y)
			x, y = strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
			if len(x) != len(y) {
				return len(x) - len(y)
			}
			if c := strings.Compare(x, y); c != 0 {
				return c
			}
			continue
		}
		if a[i] != b[j] {
			return int(a[i]) - int(b[j])
		}
		i++
		j++
	}
	if c := (len(a) - i) - (len(b) - j); c != 0 {
		return c
	}
	return strings.Compare(a, b)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func digits(s string) string {
	n := 0
	for n < len(s) && isDigit(s[n]) {
		n++
	}
	return s[:n]
}
