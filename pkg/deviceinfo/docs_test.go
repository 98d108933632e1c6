// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/internal/base/testkit"
)

// docs/contributing/conformance-device-info.md lists the tests of each requirement. The tests must
// exist, and every section with a requirement must have one.
func TestEveryRequirementHasATest(t *testing.T) {
	doc, err := os.ReadFile("../../docs/contributing/conformance-device-info.md")
	testkit.Must(t, err)
	files, err := filepath.Glob("*_test.go")
	testkit.Must(t, err)
	tests := map[string]bool{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		testkit.Must(t, err)
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				tests[f.Name.Name] = true
			}
		}
	}
	for _, name := range regexp.MustCompile(`\b(Test|Fuzz|Benchmark|Example)[A-Z]\w*`).FindAllString(string(doc), -1) {
		if !tests[name] {
			t.Errorf("%s is listed but does not exist", name)
		}
	}
	for _, section := range strings.Fields(`1 3 3.1 3.1.1 3.1.2 3.1.3 3.1.3.1 3.1.3.2 3.1.3.3 3.1.3.4 3.1.3.5 3.1.4 3.1.4.1 3.1.4.2 3.1.4.3
		3.1.4.4 3.1.4.5 3.1.4.6 3.1.5 3.1.5.1 3.1.5.2 3.1.6 3.1.6.1 3.1.6.2 3.1.6.3 4 4.1 4.1.1 4.2 4.2.1 5.1 5.1.1 5.1.2 6.1 6.1.1`) {
		if !regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(section) + ` \|.*(Test|Fuzz)`).Match(doc) {
			t.Errorf("§%s has no test in the table", section)
		}
	}
}
