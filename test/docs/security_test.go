// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/test/testnames"
)

// threatRows returns the rows of the table of threats after a text, by their first cell.
// The header row of each table begins with "threat".
func threatRows(t *testing.T, path, after string) (threats []string, others map[string]string) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(top, path))
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(page), after)
	if !ok {
		t.Fatalf("%s does not contain %q", path, after)
	}
	table, _, _ = strings.Cut(table, "\n## ")
	others = map[string]string{}
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 2 || strings.HasPrefix(cells[0], "---") || strings.TrimSpace(cells[0]) == "threat" {
			continue
		}
		threat := strings.TrimSpace(cells[0])
		threats = append(threats, threat)
		others[threat] = cells[1]
	}
	return threats, others
}

// Each threat has a row in the table of tests, and the tests of the row exist.
func TestThreatsHaveTests(t *testing.T) {
	threats, _ := threatRows(t, "docs/explanation/trust-and-threats.md", "\n## Threats\n")
	tried, cells := threatRows(t, "docs/contributing/traceability-security.md", "# Traceability")
	if !slices.Equal(threats, tried) {
		t.Errorf("the threats of the pages differ:\nthreats %q\ntests   %q", threats, tried)
	}
	tests := testnames.Find(t, top)
	for _, threat := range tried {
		names := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`").FindAllStringSubmatch(cells[threat], -1)
		if len(names) == 0 {
			t.Errorf("no test covers %q", threat)
		}
		for _, name := range names {
			if !tests[name[1]] {
				t.Errorf("%s, which covers %q, does not exist", name[1], threat)
			}
		}
	}
	if len(threats) < 28 {
		t.Errorf("the page has only %d threats", len(threats))
	}
}
