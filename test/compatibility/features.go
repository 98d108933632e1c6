// SPDX-License-Identifier: Apache-2.0

// Package compatibility has the table of Jackfield's features with each container runtime. The tests of package e2e read
// it to know which runtimes lack a feature, and the tables of two pages are written from it:
// docs/reference/compatibility.md and docs/contributing/test-matrix-compatibility.md. `make compatibility`
// writes them.
//
// Invariant: a runtime has a feature if and only if tests of it run there.
package compatibility

import (
	"slices"
	"strings"

	"github.com/jackfield/jackfield/test/e2e/node"
)

// NRI is the column of the newest release of containerd/nri, which no released runtime has. Its tests are in test/nri.
const NRI node.Generation = "nri"

// Column is a runtime in the tables.
type Column struct {
	Runtime node.Generation
	Title   string
}

// Columns returns the columns of the tables.
func Columns() []Column {
	return []Column{{node.V1, "containerd 1.7"}, {node.V2, "containerd 2.1"}, {node.V24, "containerd 2.4"},
		{node.CRIO, "CRI-O 1.36, runc"}, {node.CRIOCrun, "CRI-O 1.36, crun"}, {NRI, "NRI 0.12"}}
}

// Feature is a row of the tables.
type Feature struct {
	Name string
	// Tests are the names of the tests that run on every runtime of package node.
	Tests string
	// Other has the cells of runtimes that lack the feature, or have it with a note or other tests. NRI is always one.
	Other map[node.Generation]Cell
}

// Cell is a feature of one runtime.
type Cell struct {
	// Mark is the cell of docs/reference/compatibility.md: it begins with "✓", "–" or "untested"; empty: "✓".
	Mark string
	// Tests are the names of the tests. If it is empty, Feature.Tests apply, or no test if the runtime lacks the feature.
	Tests string
}

// Has reports whether a runtime has the feature.
func (f Feature) Has(g node.Generation) bool { return strings.HasPrefix(f.Mark(g), "✓") }

// Mark returns the cell of docs/reference/compatibility.md.
func (f Feature) Mark(g node.Generation) string {
	if c := f.Other[g]; c.Mark != "" {
		return c.Mark
	}
	return "✓"
}

// tests returns the cell of docs/contributing/test-matrix-compatibility.md.
func (f Feature) tests(g node.Generation) string {
	c := f.Other[g]
	names := strings.Fields(c.Tests)
	if len(names) == 0 && f.Has(g) {
		names = strings.Fields(f.Tests)
	}
	for i, name := range names {
		names[i] = "`" + name + "`"
	}
	text := strings.Join(names, ", ")
	if f.Has(g) {
		return text
	}
	mark, _, _ := strings.Cut(f.Mark(g), " ")
	if text != "" {
		return mark + ": " + text
	}
	return mark
}

// Marks returns the table of docs/reference/compatibility.md, in which features with the same marks share a row.
func Marks() string {
	var rows []Feature
	for _, f := range Features() {
		same := slices.IndexFunc(rows, func(row Feature) bool {
			return !slices.ContainsFunc(Columns(), func(c Column) bool { return row.Mark(c.Runtime) != f.Mark(c.Runtime) })
		})
		if same < 0 {
			rows = append(rows, f)
		} else {
			rows[same].Name += "; " + f.Name
		}
	}
	return table(rows, Feature.Mark)
}

// Tests returns the table of docs/contributing/test-matrix-compatibility.md.
func Tests() string { return table(Features(), Feature.tests) }

// table returns a Markdown table with a row per feature and a column per runtime.
func table(rows []Feature, cell func(Feature, node.Generation) string) string {
	var out strings.Builder
	head, rule := "| feature |", "|---|"
	for _, c := range Columns() {
		head += " " + c.Title + " |"
		rule += "---|"
	}
	out.WriteString(head + "\n" + rule + "\n")
	for _, f := range rows {
		out.WriteString("| " + f.Name + " |")
		for _, c := range Columns() {
			out.WriteString(" " + cell(f, c.Runtime) + " |")
		}
		out.WriteString("\n")
	}
	return out.String()
}
