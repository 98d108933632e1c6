// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each message that docs/troubleshooting.md explains is one that the programs can
// say.
func TestMessages(t *testing.T) {
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
	seen := 0
	for _, p := range all(t) {
		if p.path != "docs/troubleshooting.md" {
			continue
		}
		messages := false
		for _, l := range p.lines {
			cells := strings.Split(l.text, "|")
			if len(cells) < 3 {
				messages = false
				continue
			}
			if strings.TrimSpace(cells[1]) == "the message has" {
				messages = true
				continue
			}
			if span := (line{text: cells[1]}).code(); messages && len(span) == 1 {
				seen++
				if !strings.Contains(sources.String(), span[0]) {
					t.Errorf("%s: no program says %q", p.place(l.number), span[0])
				}
			}
		}
	}
	if seen < 15 {
		t.Errorf("found %d messages only", seen)
	}
}
