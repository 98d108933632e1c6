// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
)

// outages is a table and a plot of the outages of a packet stream after a reset.
type outages struct {
	name, title string
	rows        []outageRow
}

// outageRow is one setup. Its benchmark reports last-ms, bridge-ms, first-ms, first-low-ms, first-high-ms and lost. If
// the stream did not return, it reports never-s, the time that it waited.
type outageRow struct {
	vswitch, port, database string
	by                      string // the party that restores the ports; the colour of its bar
	bench                   string
	reason                  string // for a row without a benchmark
}

// outageFigures are the figures of a row, in ns.
type outageFigures struct {
	last, bridge, first, low, high, lost float64
	never                                float64 // 0: the stream returned after each reset
	recovered                            bool    // after some reset
}

func (w *outageRow) figures() []figure {
	var all []figure
	for _, metric := range []string{"last-ms", "bridge-ms", "first-ms", "first-low-ms", "first-high-ms", "lost", "never-s"} {
		all = append(all, figure{w.bench, metric})
	}
	return all
}

// readFigures returns the figures of a row, and false if it was not measured.
func (w *outageRow) readFigures(r results) (outageFigures, bool) {
	var o outageFigures
	measured := false
	for i, to := range []*float64{&o.last, &o.bridge, &o.first, &o.low, &o.high, &o.lost, &o.never} {
		v, ok := r.median(w.figures()[i])
		*to = v
		measured = measured || ok
	}
	_, o.recovered = r.median(figure{w.bench, "first-ms"})
	return o, measured && w.bench != ""
}

// table returns the rows as Markdown and a link to the plot, or "" if nothing was measured.
func (t *outages) table(r results) string {
	var b strings.Builder
	some := false
	b.WriteString("| switch | pod's port | database | ports restored by | last packet | bridge exists | first packet " +
		"| packets lost |\n|---|---|---|---|---|---|---|---|\n")
	for i := range t.rows {
		w := &t.rows[i]
		if w.reason != "" {
			fmt.Fprintf(&b, "| %s | %s | %s | – | – | – | not measured: %s | – |\n",
				w.vswitch, w.port, w.database, w.reason)
			continue
		}
		o, ok := w.readFigures(r)
		if !ok {
			continue
		}
		some = true
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", w.vswitch, w.port, w.database, w.by, o.cells())
	}
	if !some {
		return ""
	}
	fmt.Fprintf(&b, "\n![%s](../images/%s)\n", t.title, t.fileName())
	return b.String()
}

// cells returns the measured cells of a row.
func (o outageFigures) cells() string {
	never := "never in " + text(o.never, "ns")
	if !o.recovered {
		return "| | " + never + " | all"
	}
	first := fmt.Sprintf("**%s** (%s – %s)", text(o.first, "ns"), text(o.low, "ns"), text(o.high, "ns"))
	if o.never > 0 {
		first += ", then " + never
	}
	return fmt.Sprintf("%.1f ms | %s | %s | %.0f", o.last/1e6, text(o.bridge, "ns"), first, o.lost)
}

func (t *outages) fileName() string { return t.name + ".svg" }
