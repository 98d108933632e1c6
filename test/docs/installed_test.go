// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Installed text refers to manual pages, because the pages of docs/ are not installed.
func TestInstalledTextNamesNoPage(t *testing.T) {
	page := regexp.MustCompile(`\bdocs/[a-z0-9/-]+\.md\b`)
	for _, file := range []string{"deploy/config.yaml", "deploy/install/config.yaml"} {
		text, err := os.ReadFile(filepath.Join(top, file))
		if err != nil {
			t.Fatal(err)
		}
		if found := page.Find(text); found != nil {
			t.Errorf("%s names %s", file, found)
		}
	}
	literals := 0
	for _, dir := range []string{"cmd", "nri", "pkg"} {
		err := filepath.WalkDir(filepath.Join(top, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					literals++
					if found := page.FindString(lit.Value); found != "" {
						t.Errorf("%s: a string names %s", set.Position(lit.Pos()), found)
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if literals < 1000 {
		t.Errorf("found only %d literals", literals)
	}
}
