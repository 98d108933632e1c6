// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"regexp"
	"testing"

	"github.com/jackfield/jackfield/test/testnames"
)

// Each threat has a row in the table of tests, with its defence, and the tests of the row exist.
func TestThreatsHaveTests(t *testing.T) {
	rows := tableRows(t, "docs/contributing/traceability-security.md", "threat", "defence", "tests")
	tests := testnames.Find(t, top)
	for _, row := range rows {
		names := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`").FindAllStringSubmatch(row[2], -1)
		if len(names) == 0 || row[1] == "" {
			t.Errorf("no defence or test covers %q", row[0])
		}
		for _, name := range names {
			if !tests[name[1]] {
				t.Errorf("%s, which covers %q, does not exist", name[1], row[0])
			}
		}
	}
	if len(rows) < 28 {
		t.Errorf("the page has only %d threats", len(rows))
	}
}
