// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// docs/reference/cli.md has a table for each type whose values appear in JSON output, with exactly these values.
func TestCodesAreDocumented(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(top, "docs/reference/cli.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ dir, typeName, column string }{
		{"internal/engine", "RequestKind", "kind"},
		{"internal/engine", "Outcome", "outcome"},
		{"internal/deliver/staging", "Reason", "stagingReasonCode"},
	} {
		want, got := constantsOf(t, tc.dir, tc.typeName), tableColumn(string(data), tc.column)
		if len(want) == 0 || !slices.Equal(want, got) {
			t.Errorf("docs/reference/cli.md documents %q as %s, and %s.%s has %q", got, tc.column, tc.dir, tc.typeName, want)
		}
	}
}

// constantsOf returns the sorted values of a package's string constants of a type.
func constantsOf(t *testing.T, dir, typeName string) (values []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(top, dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			if of, ok := spec.Type.(*ast.Ident); ok && of.Name == typeName && len(spec.Values) == 1 {
				if lit, ok := spec.Values[0].(*ast.BasicLit); ok {
					value, err := strconv.Unquote(lit.Value)
					if err != nil {
						t.Fatal(err)
					}
					values = append(values, value)
				}
			}
			return true
		})
	}
	slices.Sort(values)
	return values
}

// inJSON matches the JSON value of a row whose value differs in JSON.
var inJSON = regexp.MustCompile("`([^`]*)` in JSON")

// tableColumn returns the sorted values of the first column of the table with this heading, as JSON has them.
func tableColumn(page, heading string) (values []string) {
	_, rest, _ := strings.Cut(page, "\n| "+heading+" | ")
	for i, row := range strings.Split(rest, "\n") {
		if i < 2 {
			continue // the header row and the line below it
		}
		value, ok := strings.CutPrefix(row, "| `")
		if !ok {
			break
		}
		value, _, _ = strings.Cut(value, "`")
		if other := inJSON.FindStringSubmatch(row); other != nil {
			value = other[1]
		}
		values = append(values, value)
	}
	slices.Sort(values)
	return values
}
