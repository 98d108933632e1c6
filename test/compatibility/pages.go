// SPDX-License-Identifier: Apache-2.0

package compatibility

import (
	"errors"
	"strings"
)

// Pages returns the table of each page, whose path is relative to the repository.
func Pages() map[string]string {
	return map[string]string{
		"docs/reference/compatibility.md":                Marks(),
		"docs/contributing/test-matrix-compatibility.md": Tests(),
	}
}

// Replace replaces the table of features in a page.
func Replace(page, table string) (string, error) {
	before, rest, found := strings.Cut(page, "| feature |")
	_, after, ends := strings.Cut(rest, "\n\n")
	if !found || !ends {
		return "", errors.New("the page has no table of features")
	}
	return before + table + "\n" + after, nil
}
