// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strconv"
	"strings"
)

// The plot's size and the margins around its axes, in pixels.
const (
	plotWidth, plotHeight = 720, 420
	left, right           = 78, 170
	above, below          = 48, 52
)

// colours are those of the sides in their order, of Okabe and Ito's set, which
// people with colour-blindness can tell apart.
var colours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00"}

// line is one side with what was measured of it.
type line struct {
	name, colour string
	n, v         []float64
}

// svg draws the growth with both axes logarithmic; false without any figure.
func (g *growth) svg(r results) (string, bool) {
	var lines []line
	for i, s := range g.sides {
		l := line{name: s.name, colour: colours[i%len(colours)]}
		for _, n := range sizes {
			if v, ok := r.median(s.at(n)); ok && v > 0 {
				l.n, l.v = append(l.n, float64(n)), append(l.v, v)
			}
		}
		if len(l.n) > 0 {
			lines = append(lines, l)
		}
	}
	if len(lines) == 0 {
		return "", false
	}
	return draw(strings.ReplaceAll(g.title, "`", ""), unit(g.sides[0].metric), lines, g.most), true
}

// scaleOf maps the logarithm of a range onto pixels.
type scaleOf struct{ low, high, from, to float64 }

func (s scaleOf) at(v float64) float64 {
	return s.from + (math.Log10(v)-s.low)/(s.high-s.low)*(s.to-s.from)
}

func draw(title, unit string, lines []line, most float64) string {
	x := scaleOf{math.Log10(float64(sizes[0])), math.Log10(float64(sizes[len(sizes)-1])), left, plotWidth - right}
	low, high := math.Inf(1), math.Inf(-1)
	for _, l := range lines {
		low, high = min(low, slices.Min(l.v)), max(high, slices.Max(l.v))
	}
	if most > 0 {
		low, high = min(low, most), max(high, most)
	}
	y := scaleOf{math.Floor(math.Log10(low)), math.Ceil(math.Log10(high)), plotHeight - below, above}
	if y.high == y.low {
		y.high++
	}
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">`, plotWidth, plotHeight)
	p(`<title>%s, by the number of files</title>`, html.EscapeString(title))
	p(`<rect width="%d" height="%d" fill="#ffffff"/>`, plotWidth, plotHeight)
	p(`<text x="%d" y="26" font-size="16" fill="#222222">%s</text>`, left, html.EscapeString(upperFirst(title)))
	for e := int(y.low); e <= int(y.high); e++ {
		v := math.Pow(10, float64(e))
		p(`<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#dddddd"/>`, left, y.at(v), plotWidth-right, y.at(v))
		p(`<text x="%d" y="%.1f" text-anchor="end" fill="#444444">%s</text>`, left-8, y.at(v)+4, tick(v, unit))
	}
	for _, n := range sizes {
		p(`<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#dddddd"/>`, x.at(float64(n)), above, x.at(float64(n)), plotHeight-below)
		p(`<text x="%.1f" y="%d" text-anchor="middle" fill="#444444">%d</text>`, x.at(float64(n)), plotHeight-below+20, n)
	}
	p(`<text x="%d" y="%d" text-anchor="middle" fill="#444444">files</text>`, (left+plotWidth-right)/2, plotHeight-12)
	if most > 0 {
		p(`<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#888888" stroke-dasharray="5 4"/>`, left, y.at(most), plotWidth-right, y.at(most))
	}
	places := labels(lines, y, most)
	for i, l := range lines {
		var points []string
		for j := range l.n {
			points = append(points, fmt.Sprintf("%.1f,%.1f", x.at(l.n[j]), y.at(l.v[j])))
		}
		p(`<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`, strings.Join(points, " "), l.colour)
		for j := range l.n {
			p(`<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"/>`, x.at(l.n[j]), y.at(l.v[j]), l.colour)
		}
		p(`<text x="%d" y="%.1f" fill="%s">%s</text>`, plotWidth-right+10, places[i]+4, l.colour, html.EscapeString(l.name))
	}
	if most > 0 {
		p(`<text x="%d" y="%.1f" fill="#666666">target: %s</text>`, plotWidth-right+10, places[len(lines)]+4, text(most, unit))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// labels are the heights of the names beside the ends of the lines, and of the
// target's after them, moved so that none lies on another.
func labels(lines []line, y scaleOf, most float64) []float64 {
	at := make([]float64, 0, len(lines)+1)
	for _, l := range lines {
		at = append(at, y.at(l.v[len(l.v)-1]))
	}
	if most > 0 {
		at = append(at, y.at(most))
	}
	order := make([]int, len(at))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case at[a] < at[b]:
			return -1
		case at[a] > at[b]:
			return 1
		}
		return 0
	})
	const apart = 16
	for i := 1; i < len(order); i++ {
		at[order[i]] = max(at[order[i]], at[order[i-1]]+apart)
	}
	// What was pushed out at the bottom is pushed back up.
	for i, bottom := len(order)-1, float64(plotHeight-below+10); i >= 0; i, bottom = i-1, bottom-apart {
		at[order[i]] = min(at[order[i]], bottom)
	}
	return at
}

// tick is a power of ten of a unit.
func tick(v float64, unit string) string {
	if unit == "B" && v >= 1e3 {
		return strconv.FormatFloat(v/1e3, 'f', -1, 64) + " kB"
	}
	number, name, _ := strings.Cut(text(v, unit), " ")
	if whole, fraction, ok := strings.Cut(number, "."); ok && strings.Trim(fraction, "0") == "" {
		number = whole
	}
	return strings.TrimSpace(number + " " + name)
}
