// SPDX-License-Identifier: Apache-2.0

package compatibility

import (
	"fmt"
	"strings"
)

// Table is a table of a page.
type Table struct {
	// Page is the path of the page, relative to the repository.
	Page string
	// Text is the table. Its first cell identifies the table in the page.
	Text string
}

// Tables returns the tables of the pages.
func Tables() []Table {
	const reference, matrix = "docs/reference/compatibility.md", "docs/contributing/test-matrix-compatibility.md"
	return []Table{{reference, Marks()}, {matrix, Tests()}, {matrix, CritestCounts()}, {matrix, CritestFailures()}}
}

// Replace returns the text of the page with the current table.
func (t Table) Replace(page string) (string, error) {
	head, _, _ := strings.Cut(strings.TrimPrefix(t.Text, "| "), " |")
	head = "| " + head + " |"
	before, rest, found := strings.Cut(page, head)
	_, after, ends := strings.Cut(rest, "\n\n")
	if !found || !ends {
		return "", fmt.Errorf("the page has no table %q", head)
	}
	return before + t.Text + "\n" + after, nil
}
