// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// featureRows returns the rows of a page's first table of features, each with its cells.
func featureRows(t *testing.T, path string) [][]string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(top, path))
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(page), "\n| feature |")
	if !ok {
		t.Fatalf("%s has no table of features", path)
	}
	table, _, _ = strings.Cut(table, "\n\n")
	var rows [][]string
	for _, line := range strings.Split(table, "\n")[2:] {
		var cells []string
		for cell := range strings.SplitSeq(strings.Trim(line, "|"), "|") {
			cells = append(cells, strings.TrimSpace(cell))
		}
		rows = append(rows, cells)
	}
	return rows
}

// The test matrix has the same features as the compatibility page, and a test for each check mark.
func TestFeaturesHaveTests(t *testing.T) {
	marks := featureRows(t, "docs/reference/compatibility.md")
	tests := featureRows(t, "docs/contributing/test-matrix-compatibility.md")
	feature := func(row []string) string { return row[0] }
	if !slices.EqualFunc(marks, tests, func(a, b []string) bool { return feature(a) == feature(b) && len(a) == len(b) }) {
		t.Fatalf("the features of the pages differ:\nmarks %q\ntests %q", marks, tests)
	}
	for i, row := range marks {
		for j, mark := range row[1:] {
			cell := tests[i][j+1]
			if tested := strings.HasPrefix(cell, "`Test"); tested != strings.HasPrefix(mark, "✓") {
				t.Errorf("%s: the mark is %q, the tests are %q", row[0], mark, cell)
			}
		}
	}
	if len(marks) < 18 {
		t.Errorf("found only %d features", len(marks))
	}
}
