// SPDX-License-Identifier: Apache-2.0

package script

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/jackfield/jackfield/internal/adapter/cli"
)

// The test cases of docs/reference/policy.md pass with its first example.
func TestCasesOfPolicyPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	rules := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(page)
	cases := regexp.MustCompile("(?s)```cases\n(.*?)```").FindSubmatch(page)
	if rules == nil || cases == nil {
		t.Fatal("the page has no rules, or no cases")
	}
	dir := t.TempDir()
	for name, text := range map[string][]byte{"config.yaml": rules[1], "policy-tests/tenants.yaml": cases[1]} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	env := cli.Env{Stdin: &bytes.Buffer{}, Stdout: &out, Stderr: &out, Getenv: func(string) string { return "" }}
	if status := cli.Run(context.Background(), []string{"policy", "test", filepath.Join(dir, "policy-tests")}, env); status != 0 || out.String() != "3 of 3 passed\n" {
		t.Errorf("status %d:\n%s", status, &out)
	}
}
