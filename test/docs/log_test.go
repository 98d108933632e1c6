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

// unlisted are the messages that the page does not list: they concern the plugin's own files, and name them.
var unlisted = []string{
	"cannot search /proc for running sandboxes", "this runtime reports no running containers to a plugin",
	"cannot remove the copy of a configuration file", "the copy of the last good configuration cannot be used",
	"cannot close the watches", "cannot copy the configuration", "cannot notify systemd", "jackfield status may lose",
	"the audit file can be written again", "%d more lines about requests",
}

// loggedMessages returns the literals with which the calls of a logger's Warn and Error in package nri begin.
func loggedMessages(t *testing.T) (messages []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(top, "nri", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			method, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !slices.Contains([]string{"Warn", "Warnf", "Error", "Errorf"}, method.Sel.Name) {
				return true
			}
			if of, ok := method.X.(*ast.Ident); ok && of.Name == "fmt" {
				return true
			}
			first := call.Args[0]
			for {
				sum, ok := first.(*ast.BinaryExpr)
				if !ok {
					break
				}
				first = sum.X
			}
			if text, ok := first.(*ast.BasicLit); ok && text.Kind == token.STRING {
				message, err := strconv.Unquote(text.Value)
				if err != nil {
					t.Fatal(err)
				}
				messages = append(messages, message)
			}
			return true
		})
	}
	return messages
}

// The page lists the warnings and errors of the plugin's log, and each of its items is one of them.
func TestMessagesOfLogAreDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(top, "docs/reference/errors.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Warnings and errors in the log\n")
	var items []string
	for _, item := range regexp.MustCompile("(?m)^- (`.*?`): ").FindAllStringSubmatch(section, -1) {
		for _, quoted := range regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(item[1], -1) {
			items = append(items, quoted[1])
		}
	}
	messages := loggedMessages(t)
	if len(messages) < 20 || len(items) < 20 {
		t.Fatalf("read %d messages and %d items", len(messages), len(items))
	}
	for _, message := range messages {
		if !slices.ContainsFunc(append(items, unlisted...), func(begin string) bool { return strings.HasPrefix(message, begin) }) {
			t.Errorf("the page does not list %q", message)
		}
	}
	var sources strings.Builder
	files, _ := filepath.Glob(filepath.Join(top, "nri", "*.go"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		sources.Write(text)
	}
	for _, item := range append(items, unlisted...) {
		if !strings.Contains(sources.String(), item) {
			t.Errorf("the plugin does not log %q", item)
		}
	}
}
