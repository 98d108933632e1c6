// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
)

// between replaces what stands between the markers of a name, which are comments
// on lines of their own.
func between(doc, name, text string) (string, error) {
	begin, end := "<!-- bench:"+name+" -->\n", "<!-- /bench:"+name+" -->\n"
	if strings.Count(doc, begin) != 1 || strings.Count(doc, end) != 1 {
		return "", fmt.Errorf("found no single pair of %q and %q", strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	before, rest, _ := strings.Cut(doc, begin)
	_, after, ok := strings.Cut(rest, end)
	if !ok {
		return "", fmt.Errorf("%q stands before %q", strings.TrimSpace(end), strings.TrimSpace(begin))
	}
	return before + begin + "\n" + strings.TrimSpace(text) + "\n\n" + end + after, nil
}
