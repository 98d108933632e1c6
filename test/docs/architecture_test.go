// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"path/filepath"
	"regexp"
	"testing"
)

// The packages, files and pages that the architecture page names as places for additions exist.
func TestPlacesOfArchitecturePageExist(t *testing.T) {
	rows := tableRows(t, "docs/contributing/architecture.md", "you add or change", "go to", "and also")
	if len(rows) < 10 {
		t.Errorf("found only %d rows", len(rows))
	}
	path := regexp.MustCompile("`((?:cmd|deploy|hooks\\.d|internal|nri|pkg|test)(?:/[^`]*)?)`|\\b(docs/[a-z./-]+\\.(?:md|json))")
	for _, row := range rows {
		for _, cell := range row[1:] {
			for _, m := range path.FindAllStringSubmatch(cell, -1) {
				place := m[1] + m[2]
				if found, err := filepath.Glob(filepath.Join(top, place)); err != nil || len(found) == 0 {
					t.Errorf("%q goes to %s, which does not exist", row[0], place)
				}
			}
		}
	}
}
