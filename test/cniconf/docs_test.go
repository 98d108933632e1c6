// SPDX-License-Identifier: Apache-2.0

package cniconf_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/internal/base/testkit"

	"github.com/jackfield/jackfield/test/testnames"
)

// docs/contributing/conformance-cni.md has a row for every requirement of the specification. Each row
// quotes the specification and names existing tests.
func TestEveryRequirementHasATest(t *testing.T) {
	page, err := os.ReadFile("../../docs/contributing/conformance-cni.md")
	testkit.Must(t, err)
	rows := regexp.MustCompile("(?m)^\\| [1-5] \\| (.*?) \\| .* \\| (`Test.*) \\|$").FindAllStringSubmatch(string(page), -1)
	if len(rows) < 50 {
		t.Fatalf("the table has only %d rows", len(rows))
	}
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/containernetworking/cni").Output()
	testkit.Must(t, err)
	data, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), "SPEC.md"))
	testkit.Must(t, err)
	spec, _, ok := strings.Cut(string(data), "## Appendix: Examples")
	if !ok || !strings.Contains(spec, "This is CNI **spec** version **1.1.0**") {
		t.Fatal("the reference's specification has another version: review the table")
	}
	tests := testnames.Find(t, ".", "../../internal/adapter/cni", "../../internal/port/network")
	used := map[string]bool{}
	for _, row := range rows {
		used[row[1]] = strings.Contains(spec, row[1])
		if !used[row[1]] {
			t.Errorf("the specification has no %q", row[1])
		}
		for _, name := range regexp.MustCompile(`\w+`).FindAllString(row[2], -1) {
			if !tests[name] {
				t.Errorf("the row of %q names %s, which does not exist", row[1], name)
			}
		}
	}
	word := regexp.MustCompile(`(?i)\bmust\b|\brequired\b`)
	_, body, _ := strings.Cut(spec, "## Section 1")
	for line := range strings.Lines(body) {
		if !word.MatchString(line) {
			continue
		}
		found := false
		for _, row := range rows {
			found = found || strings.Contains(line, row[1])
		}
		if !found {
			t.Errorf("no row has %q", strings.TrimSpace(line))
		}
	}
}
