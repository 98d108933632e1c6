// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/test/testnames"
)

// Each row of the table of threats names tests, and each of them exists.
func TestThreatsAreTried(t *testing.T) {
	page, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(page), "\n## Threats\n")
	if !ok {
		t.Fatal("the page has no threats")
	}
	table, _, _ = strings.Cut(table, "\n## ")
	tests := testnames.Of(t, top)
	rows := 0
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 3 || strings.HasPrefix(cells[0], "---") || strings.TrimSpace(cells[0]) == "threat" {
			continue
		}
		rows++
		names := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`").FindAllStringSubmatch(cells[2], -1)
		if len(names) == 0 {
			t.Errorf("nothing tries%s", cells[0])
		}
		for _, name := range names {
			if !tests[name[1]] {
				t.Errorf("%s, which tries%s, does not exist", name[1], cells[0])
			}
		}
	}
	if rows < 15 {
		t.Errorf("%d rows", rows)
	}
}
