// SPDX-License-Identifier: Apache-2.0

package script

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/internal/adapter/cli"
)

// Each recipe of the page is a valid configuration. It passes the test cases in the file of
// testdata/recipes that is named after its heading.
func TestPolicyRecipes(t *testing.T) {
	page, err := os.ReadFile("../../docs/how-to/write-a-policy.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := regexp.MustCompile("(?m)^#+ ").Split(string(page), -1)
	recipes := 0
	for _, section := range sections {
		heading, text, _ := strings.Cut(section, "\n")
		block := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(text)
		if block == nil {
			continue
		}
		recipes++
		slug := regexp.MustCompile(`[^a-z0-9-]`).ReplaceAllString(strings.ReplaceAll(strings.ToLower(heading), " ", "-"), "")
		t.Run(slug, func(t *testing.T) {
			config := filepath.Join(t.TempDir(), "config.yaml")
			if err := os.WriteFile(config, []byte(block[1]), 0o644); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			env := cli.Env{Stdin: &bytes.Buffer{}, Stdout: &out, Stderr: &out, Getenv: func(string) string { return "" }}
			cases := filepath.Join("testdata/recipes", slug+".yaml")
			if status := cli.Run(context.Background(), []string{"policy", "test", cases, "--config", config}, env); status != 0 {
				t.Errorf("status %d:\n%s", status, &out)
			}
		})
	}
	files, err := filepath.Glob("testdata/recipes/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if blocks := bytes.Count(page, []byte("```yaml\n")); recipes < 7 || recipes != blocks || recipes != len(files) {
		t.Errorf("%d recipes, %d configurations, %d files of cases", recipes, blocks, len(files))
	}
}
