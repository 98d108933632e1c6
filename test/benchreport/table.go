// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

// row is a figure and its peer's figure from the same run.
type row struct {
	text string // what was measured
	ours figure
	peer figure // {} without a peer
	by   string // the peer's name
	// ratio is set if the benchmark itself reports the ratio of ours to the peer's.
	ratio figure

	zero      bool    // the target for ours is 0
	most      float64 // target for ours, in the base unit (ns, B, %); 0 is none
	mostTimes float64 // target for ours over the peer's; 0 is none
}

// growth is a figure by the number of files, for several sides. It becomes a table and a plot.
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

// tables returns a section's tables as Markdown.
func (s *section) tables(r results) string {
	var b strings.Builder
	b.WriteString(s.intro())
	b.WriteString("\n\n")
	if len(s.rows) > 0 {
		b.WriteString("| | Jackfield | peer | ratio | target |\n|---|---|---|---|---|\n")
	}
	for i := range s.rows {
		b.WriteString(s.rows[i].line(r))
	}
	for i := range s.growths {
		b.WriteString(s.growths[i].table(r))
	}
	if s.outages != nil {
		b.WriteString(s.outages.table(r))
	}
	return b.String()
}

// intro returns a line with the command, Go version and processor of the figures.
func (s *section) intro() string {
	return fmt.Sprintf("<sub>`make bench BENCHFLAGS='-only %s'`: %s, %d CPUs%s.</sub>", s.name, runtime.Version(), runtime.NumCPU(), model())
}

// model returns the processor's name from the kernel.
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

// line returns the row, or "" if ours was not measured.
func (w *row) line(r results) string {
	ours, ok := r.median(w.ours)
	if !ok {
		return ""
	}
	var peer, ratio string
	var targets []string
	target := func(met bool, text string) {
		if met {
			targets = append(targets, text+": met")
		} else {
			targets = append(targets, text+": **missed**")
		}
	}
	if w.most > 0 {
		target(ours <= w.most, "≤ "+text(w.most, unit(w.ours.metric)))
	}
	if w.zero {
		_, high := r.extremes(w.ours)
		target(high == 0, "0")
	}
	if v, ok := r.median(w.peer); ok {
		peer = text(v, unit(w.peer.metric)) + " " + w.by
		against, span := w.compare(r, ours, v)
		if !w.zero {
			ratio = span
		}
		switch {
		case w.mostTimes >= 1:
			target(against <= w.mostTimes, "≤ "+digits(w.mostTimes)+" ×")
		case w.mostTimes > 0:
			target(against <= w.mostTimes, "≥ "+digits(1/w.mostTimes)+" × faster")
		}
	}
	return fmt.Sprintf("| %s | **%s** | %s | %s | %s |\n", w.text, text(ours, unit(w.ours.metric)), peer, ratio, strings.Join(targets, "; "))
}

// compare returns ours divided by the peer's, and the ratio as text with the range of the runs.
func (w *row) compare(r results, ours, peer float64) (float64, string) {
	v, ok := r.median(w.ratio)
	if !ok {
		return ours / peer, times(ours / peer)
	}
	s := times(v)
	if low, high := r.extremes(w.ratio); times(low) != times(high) {
		s += fmt.Sprintf(" (%s – %s)", times(low), times(high))
	}
	return v, s
}

func (g *growth) fileName() string { return g.name + ".svg" }

// table returns the figure of each side and number, and a link to the plot.
func (g *growth) table(r results) string {
	var b strings.Builder
	for _, s := range g.sides {
		var cells []string
		some := false
		for _, n := range sizes {
			v, ok := r.median(s.withSize(n))
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
	return head + " |" + rule + "\n" + b.String() + fmt.Sprintf("\n![%s, by the number of files](../images/%s)\n", upperFirst(strings.ReplaceAll(g.title, "`", "")), g.fileName())
}

func upperFirst(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
