// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"os"
	"path/filepath"
	"testing"
)

// The total in the progress of a build includes packages that the programs import.
func TestPackagesOfProgramsAreCounted(t *testing.T) {
	dir := t.TempDir()
	for file, text := range map[string]string{
		"go.mod": "module example.test/a\n\ngo 1.26\n", "b/b.go": "package b\n",
		"p/p.go":      "package main\n\nimport _ \"example.test/a/b\"\n\nfunc main() {}\n",
		"q/q.go":      "package main\n\nfunc main() {}\n",
		"t/t_test.go": "package t\n\nimport \"testing\"\n\nfunc TestT(t *testing.T) {}\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	count := func(packages ...string) int {
		t.Helper()
		n, err := Programs{Dir: dir, Packages: packages}.countPackages(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if p, q := count("./p"), count("./q"); q < 2 || p != q+1 {
		t.Errorf("%d packages with an import, %d without", p, q)
	}
	tests := Programs{Dir: dir, Packages: []string{"./t"}, Test: true}
	if n, err := tests.countPackages(t.Context()); err != nil || n < 10 {
		t.Errorf("a test has %d packages, %v", n, err)
	}
	if err := tests.build(t.Context(), dir, "1", t.Logf); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "t.test")); err != nil {
		t.Error(err)
	}
	if _, err := (Programs{Dir: dir, Packages: []string{"./missing"}}).countPackages(t.Context()); err == nil {
		t.Error("no error for a missing package")
	}
}
