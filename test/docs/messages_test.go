// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A program can print each message that a heading of docs/reference/errors.md quotes.
func TestQuotedMessagesExist(t *testing.T) {
	var sources strings.Builder
	for _, dir := range []string{"nri", "pkg", "internal"} {
		err := filepath.WalkDir(filepath.Join(top, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			data, err := os.ReadFile(path)
			sources.Write(data)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	// A long message continues on the next line.
	messages := regexp.MustCompile(`" ?\+\n\s*"`).ReplaceAllString(sources.String(), "")
	quoted := regexp.MustCompile("^### `(.*)`$")
	seen := 0
	for _, p := range readPages(t) {
		if p.path != "docs/reference/errors.md" {
			continue
		}
		for _, l := range p.lines {
			if m := quoted.FindStringSubmatch(l.text); m != nil {
				seen++
				if !strings.Contains(messages, m[1]) {
					t.Errorf("%s: no program prints %q", p.place(l.number), m[1])
				}
			}
		}
	}
	if seen < 20 {
		t.Errorf("found only %d messages", seen)
	}
}
