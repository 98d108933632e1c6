// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
)

// unifiedDiff is the change of a file as `diff -U0` prints it, "" where nothing changes. A text without content is a file that does not exist.
// It is for texts that differ in few lines: it compares ever more lines until both are the same again.
func unifiedDiff(file, before, after string) string {
	if before == after {
		return ""
	}
	a, b := textLines(before), textLines(after)
	var out strings.Builder
	from := file
	if before == "" {
		from = "/dev/null"
	}
	fmt.Fprintf(&out, "--- %s\n+++ %s\n", from, file)
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

// changedLines is how many lines at the start of a and of b differ before the next line that both have, as few as possible.
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

// hunkRange is a hunk's range of lines; start counts from 0. The line of an empty range is the one before it.
func hunkRange(start, lines int) string {
	switch lines {
	case 0:
		return fmt.Sprintf("%d,0", start)
	case 1:
		return fmt.Sprint(start + 1)
	}
	return fmt.Sprintf("%d,%d", start+1, lines)
}
