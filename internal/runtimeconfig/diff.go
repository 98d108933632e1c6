// SPDX-License-Identifier: Apache-2.0

package runtimeconfig

import (
	"fmt"
	"strings"
)

// Diff returns the change as `diff -U0` prints it, "" for no change. A change is of few lines: the search
// for the next common line is quadratic.
func (c *Change) Diff() string {
	if !c.Needed() {
		return ""
	}
	a, b := textLines(c.Before), textLines(c.After)
	var out strings.Builder
	from := c.File
	if c.Before == "" {
		from = "/dev/null"
	}
	fmt.Fprintf(&out, "--- %s\n+++ %s\n", from, c.File)
	for i, j := 0, 0; i < len(a) || j < len(b); {
		if i < len(a) && j < len(b) && a[i] == b[j] {
			i, j = i+1, j+1
			continue
		}
		removed, added := changedLines(a[i:], b[j:])
		fmt.Fprintf(&out, "@@ -%s +%s @@\n", hunkRange(i, removed), hunkRange(j, added))
		for _, line := range a[i : i+removed] {
			out.WriteString("-" + line + "\n")
		}
		for _, line := range b[j : j+added] {
			out.WriteString("+" + line + "\n")
		}
		i, j = i+removed, j+added
	}
	return out.String()
}

func textLines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// changedLines returns how many lines at the start of a and of b differ before the next common
// line, as few as possible.
func changedLines(a, b []string) (removed, added int) {
	for n := 1; n < len(a)+len(b); n++ {
		for removed := max(0, n-len(b)); removed <= min(n, len(a)); removed++ {
			added := n - removed
			if removed < len(a) && added < len(b) && a[removed] == b[added] {
				return removed, added
			}
		}
	}
	return len(a), len(b)
}

// hunkRange is a hunk's range of lines; start counts from 0. The line of an empty range is the one
// before it.
func hunkRange(start, lines int) string {
	switch lines {
	case 0:
		return fmt.Sprintf("%d,0", start)
	case 1:
		return fmt.Sprint(start + 1)
	}
	return fmt.Sprintf("%d,%d", start+1, lines)
}
