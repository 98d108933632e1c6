// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const output = `goos: linux
BenchmarkCDIAdd/n=10/jackfield-2   	     100	     25000 ns/op	     21000 p50-ns	         0 %missed	 12 B/op	 1 allocs/op
BenchmarkCDIAdd/n=10/jackfield-2   	     100	     25000 ns/op	     23000 p50-ns	         0 %missed	 12 B/op	 1 allocs/op
BenchmarkCDIAdd/n=10/jackfield-2   	     100	     25000 ns/op	     99000 p50-ns	         0 %missed	 12 B/op	 1 allocs/op
BenchmarkCDIAdd/n=10/upstream-2    	      10	   1900000 ns/op	   1900000 p50-ns	        50.0 %missed
BenchmarkCDIAdd/n=1000/jackfield-2 	     100	     26000 ns/op	     24000 p50-ns	         0.5 %missed
BenchmarkCDIAdd/n=1000/upstream-2  	      10	 181000000 ns/op	 180000000 p50-ns	        50.0 %missed
BenchmarkNRICreateContainer/nothing-asked-2 	 1	 244.0 noop-µs	 1.049 x/noop	 256.0 µs
BenchmarkNRICreateContainer/4-cdi-2-sockets-2 	 1	 244.0 noop-µs	 2.049 x/noop	 500.0 µs
BenchmarkStray/case-2 	 1	 1.5 cpu-ms/op	 3 allocs/op
BenchmarkBroken: no figure
PASS
`

func parsed() results {
	r := results{}
	r.parse(output)
	return r
}

func TestMedianUsesAllRuns(t *testing.T) {
	v, ok := parsed().median(f("CDIAdd/n=10/jackfield p50-ns"))
	if !ok || v != 23000 {
		t.Errorf("got %v, %v", v, ok)
	}
	if v, _ := parsed().median(f("NRICreateContainer/nothing-asked µs")); v != 256e3 {
		t.Errorf("got %v, want ns", v)
	}
	if _, ok := parsed().median(figure{}); ok {
		t.Error("no figure has a value")
	}
}

func TestRowShowsWhetherTargetIsMet(t *testing.T) {
	for _, tt := range []struct {
		row  row
		want []string
	}{
		{nri("a", "NRICreateContainer/nothing-asked", "noop", "no-op", 1.15), []string{"| **256 µs** | 244 µs no-op | 1.05 |", "≤ 1.15 ×: met"}},
		{nri("a", "NRICreateContainer/4-cdi-2-sockets", "noop", "no-op", 1.6), []string{"2.05", "≤ 1.60 ×: **missed**"}},
		{row{text: "a", ours: f("CDIAdd/n=1000/jackfield p50-ns"), peer: f("CDIAdd/n=1000/upstream p50-ns"), by: "upstream", most: 50e3, mostTimes: 1.0 / 500},
			[]string{"**24.0 µs**", "180 ms upstream", "1/7500", "≤ 50.0 µs: met; ≥ 500 × faster: met"}},
		{row{text: "a", ours: f("CDIAdd/n=1000/jackfield p50-ns"), peer: f("CDIAdd/n=1000/upstream p50-ns"), mostTimes: 1.0 / 8000}, []string{"≥ 8000 × faster: **missed**"}},
		{row{text: "a", ours: f("CDIAdd/n=1000/jackfield %missed"), zero: true}, []string{"0.50 %", "0: **missed**"}},
		{row{text: "a", ours: f("CDIAdd/n=10/jackfield %missed"), zero: true}, []string{"**0 %**", "0: met"}},
	} {
		got := tt.row.line(parsed())
		for _, want := range tt.want {
			if !strings.Contains(got, want) {
				t.Errorf("%q is not in\n%s", want, got)
			}
		}
	}
}

func TestRowWithoutResultsIsOmitted(t *testing.T) {
	for i := range sections {
		s := &sections[i]
		if got := s.tables(results{}); strings.Contains(got, "**") {
			t.Errorf("%s has figures without results:\n%s", s.name, got)
		}
		for _, p := range s.plots() {
			if _, ok := p.drawSVG(results{}); ok {
				t.Errorf("%s is drawn without results", p.fileName())
			}
		}
	}
}

func TestPlotIsWellFormed(t *testing.T) {
	g := growth{"x", "one file <added> → resolvable", cdiSides("CDIAdd/n=N/SIDE p50-ns"), 50e3}
	svg, ok := g.drawSVG(parsed())
	if !ok {
		t.Fatal("no plot")
	}
	checkPlot(t, svg, "<polyline", "Jackfield", "target: 50.0 µs", ">100 ms<", ">10 µs<", ">1000<")
}

// checkPlot checks that a plot is well-formed and contains texts.
func checkPlot(t *testing.T, svg string, texts ...string) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
	}
	for _, want := range texts {
		if !strings.Contains(svg, want) {
			t.Errorf("%q is not in\n%s", want, svg)
		}
	}
}

func TestOutagesShowStreamsThatDoNotReturn(t *testing.T) {
	r := results{}
	r.parse(`BenchmarkRecovery/ovs/vhost-user-server/kept/jackfield-2 3 404 bridge-ms 949 first-high-ms 650 first-low-ms 687 first-ms -0.68 last-ms 459 lost
BenchmarkRecovery/ovs/vhost-user-server/kept/script-2 3 404 bridge-ms 949 first-high-ms 650 first-low-ms 687 first-ms 0.1 last-ms 459 lost 15 never-s
BenchmarkRecovery/ovs/vhost-user-server/wiped/nothing-2 3 15 never-s
`)
	table := recovery.table(r)
	for _, want := range []string{
		"| Open vSwitch | vhost-user `server` | kept | Jackfield | -0.7 ms | 404 ms | **687 ms** (650 ms – 949 ms) | 459 |",
		"(650 ms – 949 ms), then never in 15.0 s | 459 |",
		"| wiped | nothing | | | never in 15.0 s | all |",
		"| not measured: Open vSwitch has no memif ports |",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("%q is not in\n%s", want, table)
		}
	}
	if n := strings.Count(table, "\n| Open vSwitch "); n != 4 {
		t.Errorf("the table has %d rows of Open vSwitch, want those that were measured, and the reason:\n%s", n, table)
	}
	svg, ok := recovery.drawSVG(r)
	if !ok {
		t.Fatal("no plot")
	}
	checkPlot(t, svg, ">687 ms<", ">never in 15.0 s<", "Open vSwitch, vhost-user server, database wiped", ">1 s<")
}

func TestOnlyTextBetweenMarkersChanges(t *testing.T) {
	doc := "a\n<!-- bench:x -->\nold\n<!-- /bench:x -->\nz\n"
	got, err := between(doc, "x", "new\n")
	if err != nil || got != "a\n<!-- bench:x -->\n\nnew\n\n<!-- /bench:x -->\nz\n" {
		t.Errorf("%v, %q", err, got)
	}
	if again, err := between(got, "x", "new"); err != nil || again != got {
		t.Errorf("the second replacement returns %v, %q", err, again)
	}
	for _, bad := range []string{"", doc + doc, "<!-- /bench:x -->\n<!-- bench:x -->\n"} {
		if _, err := between(bad, "x", "new"); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestDocumentationHasSections(t *testing.T) {
	doc, err := os.ReadFile("../../docs/contributing/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range sectionNames() {
		if _, err := between(string(doc), name, ""); err != nil {
			t.Error(err)
		}
	}
}

func TestBenchmarksOfRowsExist(t *testing.T) {
	for i := range sections {
		files, err := filepath.Glob(filepath.Join("..", sections[i].directory(), "*_test.go"))
		if err != nil || len(files) == 0 {
			t.Fatal(err, files)
		}
		var source strings.Builder
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			source.Write(b)
		}
		for _, b := range sections[i].plan() {
			name := "func Benchmark" + functionOf(b.bench) + "("
			if !strings.Contains(source.String(), name) {
				t.Errorf("section %s runs %s, which does not exist", sections[i].name, functionOf(b.bench))
			}
		}
	}
}

func TestPatternMatchesWholeElements(t *testing.T) {
	if got := pattern("CDIAdd/n=*/jackfield"); got != "^BenchmarkCDIAdd$/^n=.*$/^jackfield$" {
		t.Error(got)
	}
	for elem := range strings.SplitSeq(pattern("a.b/c"), "/") {
		if _, err := regexp.Compile(elem); err != nil {
			t.Error(err)
		}
	}
}
