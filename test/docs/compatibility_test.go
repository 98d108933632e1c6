// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/test/compatibility"
)

// Both pages have the tables of package compatibility.
func TestCompatibilityTablesAreCurrent(t *testing.T) {
	for _, table := range compatibility.Tables() {
		old, err := os.ReadFile(filepath.Join(top, table.Page))
		if err != nil {
			t.Fatal(err)
		}
		text, err := table.Replace(string(old))
		if err != nil {
			t.Fatalf("%s: %v", table.Page, err)
		}
		if text != string(old) {
			t.Errorf("%s differs from the table of test/compatibility; run `make compatibility`", table.Page)
		}
	}
}

// Each ✓ has a test, and the page explains every mark: ✓, – and untested.
func TestFeaturesHaveTests(t *testing.T) {
	names := map[string]bool{}
	for _, f := range compatibility.Features() {
		if names[f.Name] {
			t.Errorf("two features are named %q", f.Name)
		}
		names[f.Name] = true
		for _, c := range compatibility.Columns() {
			mark, _, _ := strings.Cut(f.Mark(c.Runtime), " ")
			switch {
			case mark != "✓" && mark != "–" && mark != "untested":
				t.Errorf("%s, %s: unknown mark %q", f.Name, c.Title, mark)
			case mark == "✓" && f.Tests == "" && f.Other[c.Runtime].Tests == "":
				t.Errorf("%s, %s: there is no test", f.Name, c.Title)
			}
		}
	}
}
