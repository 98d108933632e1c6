// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"regexp"
	"strings"
	"testing"
)

// Each how-to lists what the reader needs and shows the expected result. Pages that only link to others are exempt.
func TestHowTosHaveTheirParts(t *testing.T) {
	expected := regexp.MustCompile(`(?i)expected (output|result)`)
	found := 0
	for _, p := range readPages(t) {
		if !strings.HasPrefix(p.path, "docs/how-to/") {
			continue
		}
		found++
		var text strings.Builder
		for _, l := range p.lines {
			text.WriteString(l.text + "\n")
		}
		if !strings.Contains(text.String(), "You need") {
			t.Errorf("%s does not list what the reader needs", p.path)
		}
		if !expected.MatchString(text.String()) {
			t.Errorf("%s has no expected output or result", p.path)
		}
	}
	if found < 10 {
		t.Errorf("found only %d how-tos", found)
	}
}
