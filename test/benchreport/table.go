// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
)

// row is one figure beside its peer and its floor.
type row struct {
	text string // what it is
	ours figure
	peer figure // of somebody else's, in the same run; none is ""
	by   string // who the peer is
	// ratio is where the benchmark reports ours over the peer itself.
	ratio figure
	floor figure // what nobody can do without
	under string // what the floor is

	none      bool    // the target for ours is 0
	most      float64 // target for ours, in the base unit (ns, B, %); 0 is none
	mostTimes float64 // target for ours over the peer
	mostFloor float64 // target for ours over the floor
}

// growth is one figure as it grows with the number of files, for several sides: a
// table, and a plot of the same.
type growth struct {
	name, title string
	sides       []side
	most        float64 // a line across the plot; 0 is none
}

// side is one line of a plot: "n=N" in the figure's name stands for the number.
type side struct {
	name string
	figure
}

// tables are a section's tables as Markdown.
func (s *section) tables(r results) string {
	var b strings.Builder
	b.WriteString(s.intro())
	b.WriteString("\n\n")
	if len(s.rows) > 0 {
		b.WriteString("| | Jackfield | beside it | ratio | floor | over the floor | target |\n|---|---|---|---|---|---|---|\n")
	}
	for i := range s.rows {
		b.WriteString(s.rows[i].line(r))
	}
	for i := range s.growths {
		b.WriteString(s.growths[i].table(r))
	}
	b.WriteString(s.others(r))
	return b.String()
}

// intro says where the figures are from.
func (s *section) intro() string {
	return fmt.Sprintf("<sub>`make bench BENCHFLAGS='-only %s'`: %s, %d CPUs%s.</sub>", s.name, runtime.Version(), runtime.NumCPU(), model())
}

// model is the processor's name as the kernel gives it.
func model() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return " (" + strings.TrimSpace(value) + ")"
		}
	}
	return ""
}

// line is the row, or nothing where ours was not measured.
func (w *row) line(r results) string {
	ours, ok := r.median(w.ours)
	if !ok {
		return ""
	}
	var peer, ratio, floor, over string
	var targets []string
	met := func(ok bool, what string) {
		if ok {
			targets = append(targets, what+": met")
		} else {
			targets = append(targets, what+": **missed**")
		}
	}
	if w.most > 0 {
		met(ours <= w.most, "≤ "+text(w.most, unit(w.ours.metric)))
	}
	if w.none {
		_, high := r.span(w.ours)
		met(high == 0, "0")
	}
	if v, ok := r.median(w.peer); ok {
		peer = text(v, unit(w.peer.metric)) + " " + w.by
		against, span := w.over(r, ours, v)
		if !w.none {
			ratio = span
		}
		if w.mostTimes > 0 {
			met(against <= w.mostTimes, "≤ "+digits(w.mostTimes)+" ×")
		}
	}
	if v, ok := r.median(w.floor); ok && v > 0 {
		floor = text(v, unit(w.floor.metric))
		if w.under != "" {
			floor += " " + w.under
		}
		over = times(ours / v)
		if w.mostFloor > 0 {
			met(ours/v <= w.mostFloor, "≤ "+digits(w.mostFloor)+" × the floor")
		}
	}
	return fmt.Sprintf("| %s | **%s** | %s | %s | %s | %s | %s |\n", w.text, text(ours, unit(w.ours.metric)), peer, ratio, floor, over, strings.Join(targets, "; "))
}

// over is ours over the peer, and the same as text with the range of the runs.
func (w *row) over(r results, ours, peer float64) (float64, string) {
	v, ok := r.median(w.ratio)
	if !ok {
		return ours / peer, times(ours / peer)
	}
	s := times(v)
	if low, high := r.span(w.ratio); times(low) != times(high) {
		s += fmt.Sprintf(" (%s – %s)", times(low), times(high))
	}
	return v, s
}

func (g *growth) file() string { return g.name + ".svg" }

// table is the figure of each side and number, and the plot of it.
func (g *growth) table(r results) string {
	var b strings.Builder
	for _, s := range g.sides {
		var cells []string
		some := false
		for _, n := range sizes {
			v, ok := r.median(s.at(n))
			if !ok {
				cells = append(cells, "")
				continue
			}
			some = true
			cells = append(cells, text(v, unit(s.metric)))
		}
		if some {
			fmt.Fprintf(&b, "| %s | %s |\n", s.name, strings.Join(cells, " | "))
		}
	}
	if b.Len() == 0 {
		return ""
	}
	head := fmt.Sprintf("\n**%s**, by the number of files\n\n|", upperFirst(g.title))
	rule := "\n|---|"
	for _, n := range sizes {
		head += fmt.Sprintf(" | %d", n)
		rule += "---|"
	}
	return head + " |" + rule + "\n" + b.String() + fmt.Sprintf("\n![%s, by the number of files](images/%s)\n", upperFirst(strings.ReplaceAll(g.title, "`", "")), g.file())
}

func upperFirst(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// others lists what no row has, as it was reported.
func (s *section) others(r results) string {
	if !s.rest {
		return ""
	}
	used := claimed()
	byName := map[string][]string{}
	for fig := range r {
		if !used[fig.top()] && !slices.Contains([]string{"B/op", "allocs/op", "MB/s"}, fig.metric) {
			if v, _ := r.median(fig); v != 0 {
				byName[fig.bench] = append(byName[fig.bench], fig.metric)
			}
		}
	}
	if len(byName) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("| benchmark | |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		var cells []string
		for _, m := range slices.Sorted(slices.Values(byName[name])) {
			v, _ := r.median(figure{name, m})
			cells = append(cells, strings.TrimSpace(label(m)+" "+text(v, unit(m))))
		}
		fmt.Fprintf(&b, "| %s | %s |\n", name, strings.Join(cells, ", "))
	}
	return b.String()
}

// claimed are the benchmarks that a section shows.
func claimed() map[string]bool {
	names := map[string]bool{}
	for _, s := range sections {
		for _, fig := range s.figures() {
			names[fig.top()] = true
		}
	}
	return names
}

// label is a metric's name without its unit.
func label(metric string) string {
	var keep []string
	for part := range strings.SplitSeq(strings.TrimSuffix(metric, "/op"), "-") {
		if unit(part) == "" {
			keep = append(keep, part)
		}
	}
	return strings.Join(keep, "-")
}
