// SPDX-License-Identifier: Apache-2.0

// Figures prints figures of the product's source that show how well it can be read. With -check it fails if
// a figure is beyond its limit. Limits only become stricter.
//
//	go run ./figures [-check]
package main

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// Limits of the figures, in percent, and of the methods of a type. Lower them when the source has improved.
const (
	maxLongLines    = 0.05 // lines of more than maxColumns columns
	minCommentLines = 14   // the target is 15
	maxWhatComments = 0.3  // comment lines with "what"; the target is 0.3
	maxWantErrors   = 0.1  // error messages with "want"
	maxMethods      = 30
)

const maxColumns = 120 // a tab counts as one

var (
	what = regexp.MustCompile(`(?i)\bwhat\b`)
	want = regexp.MustCompile(`\bwant\b`)
)

// figures are counted over the Go files of the product, without tests.
type figures struct {
	files, lines, longLines, commentLines, whatComments, errors, wantErrors int
	methods                                                                 map[string]int // by package directory and type
}

// figure is one row of the table.
type figure struct {
	name    string
	count   int
	of      int // 0 for a plain number
	limit   float64
	isLeast bool // the limit is the least value
}

func main() {
	check := flag.Bool("check", false, "fail if a figure is beyond its limit")
	flag.Parse()
	f, err := count("..")
	if err != nil {
		fmt.Fprintln(os.Stderr, "figures:", err)
		os.Exit(1)
	}
	bad := report(os.Stdout, f.rows())
	if *check && len(bad) > 0 {
		fmt.Fprintf(os.Stderr, "figures: beyond the limits in test/figures/main.go: %s\n", strings.Join(bad, ", "))
		os.Exit(1)
	}
}

// count reads the product's files below top.
func count(top string) (*figures, error) {
	cmd := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate", "*.go")
	cmd.Dir = top
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	f := &figures{methods: map[string]int{}}
	for name := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(name, "test/") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(top, name))
		if os.IsNotExist(err) {
			continue // removed, but still in the index
		} else if err != nil {
			return nil, err
		}
		if err := f.add(name, data); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// add counts a file.
func (f *figures) add(name string, data []byte) error {
	f.files++
	for line := range bytes.Lines(data) {
		f.lines++
		if utf8.RuneCount(bytes.TrimRight(line, "\n")) > maxColumns {
			f.longLines++
		}
	}
	f.addComments(data)
	file, err := parser.ParseFile(token.NewFileSet(), name, data, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if receiver := receiverName(n); receiver != "" {
				f.methods[filepath.Dir(name)+"."+receiver]++
			}
		case *ast.CallExpr:
			if message, ok := errorMessage(n); ok {
				f.errors++
				if want.MatchString(message) {
					f.wantErrors++
				}
			}
		}
		return true
	})
	return nil
}

func (f *figures) addComments(data []byte) {
	var s scanner.Scanner
	set := token.NewFileSet()
	s.Init(set.AddFile("", -1, len(data)), data, nil, scanner.ScanComments)
	for {
		_, tok, text := s.Scan()
		switch tok {
		case token.EOF:
			return
		case token.COMMENT:
			for line := range strings.SplitSeq(text, "\n") {
				f.commentLines++
				if what.MatchString(line) {
					f.whatComments++
				}
			}
		}
	}
}

// receiverName returns the type of a method, and "" for a function.
func receiverName(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	expr := f.Recv.List[0].Type
	for {
		switch e := expr.(type) {
		case *ast.StarExpr:
			expr = e.X
		case *ast.IndexExpr:
			expr = e.X
		case *ast.Ident:
			return e.Name
		default:
			return ""
		}
	}
}

// errorMessage returns the first string of a call that creates an error.
func errorMessage(call *ast.CallExpr) (string, bool) {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return "", false
	}
	pkg, _ := selector.X.(*ast.Ident)
	switch name := selector.Sel.Name; {
	case name == "Errorf", name == "WithMessage", name == "New" && pkg != nil && pkg.Name == "errors":
	default:
		return "", false
	}
	message, found := "", false
	for _, arg := range call.Args {
		ast.Inspect(arg, func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				message, found = message+literal.Value, true
			}
			return true
		})
	}
	return message, found
}

func (f *figures) rows() []figure {
	most, of := 0, ""
	for name, n := range f.methods {
		if n > most || n == most && name < of {
			most, of = n, name
		}
	}
	return []figure{
		{name: "files", count: f.files},
		{name: "lines", count: f.lines},
		{name: fmt.Sprintf("lines over %d columns", maxColumns), count: f.longLines, of: f.lines, limit: maxLongLines},
		{name: "comment lines", count: f.commentLines, of: f.lines, limit: minCommentLines, isLeast: true},
		{name: `comment lines with "what"`, count: f.whatComments, of: f.commentLines, limit: maxWhatComments},
		{name: `error messages with "want"`, count: f.wantErrors, of: f.errors, limit: maxWantErrors},
		{name: "most methods of a type (" + of + ")", count: most, limit: maxMethods},
	}
}

// report prints the rows and returns the names of those beyond their limits.
func report(w io.Writer, rows []figure) (bad []string) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		value, share := float64(row.count), ""
		if row.of > 0 {
			value = 100 * value / float64(row.of)
			share = fmt.Sprintf("%.2f %%", value)
		}
		limit := ""
		if row.limit > 0 {
			limit = fmt.Sprintf("at most %g", row.limit)
		}
		if row.isLeast {
			limit = fmt.Sprintf("at least %g", row.limit)
		}
		if row.isLeast && value < row.limit || !row.isLeast && row.limit > 0 && value > row.limit {
			bad = append(bad, row.name)
		}
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\n", row.name, row.count, share, limit)
	}
	table.Flush()
	return bad
}
