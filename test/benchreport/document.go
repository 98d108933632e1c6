// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
)

// between replaces the text between the markers of a name. Each marker is a comment on its own line.
func between(doc, name, text string) (string, error) {
	begin, end := "<!-- bench:"+name+" -->\n", "<!-- /bench:"+name+" -->\n"
	if strings.Count(doc, begin) != 1 || strings.Count(doc, end) != 1 {
		return "", fmt.Errorf("found no single pair of %q and %q", strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	before, rest, _ := strings.Cut(doc, begin)
	_, after, ok := strings.Cut(rest, end)
	if !ok {
		return "", fmt.Errorf("%q is before %q", strings.TrimSpace(end), strings.TrimSpace(begin))
	}
	return before + begin + "\n" + strings.TrimSpace(text) + "\n\n" + end + after, nil
}
