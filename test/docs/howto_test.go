// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"strings"
	"testing"
)

// Each how-to lists what the reader needs, and its last section shows the expected output.
func TestHowTosHaveTheirParts(t *testing.T) {
	found := 0
	for _, p := range readPages(t) {
		if !strings.HasPrefix(p.path, "docs/how-to/") {
			continue
		}
		found++
		var text strings.Builder
		last := ""
		for _, l := range p.lines {
			text.WriteString(l.text + "\n")
			if heading, ok := strings.CutPrefix(l.text, "## "); ok {
				last = heading
			}
		}
		if !strings.Contains(text.String(), "You need") {
			t.Errorf("%s does not list what the reader needs", p.path)
		}
		if last != "Expected output" || strings.Count(text.String(), "xpected output") != 1 || strings.Contains(text.String(), "xpected result") {
			t.Errorf("%s does not end with one section \"Expected output\"; its last section is %q", p.path, last)
		}
	}
	if found < 10 {
		t.Errorf("found only %d how-tos", found)
	}
}
