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

// colours has the colours of the sides in their order. They are from Okabe and Ito's set, which
// people with colour-blindness can tell apart.
var colours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00"}

// line is one side with its results.
type line struct {
	name, colour string
	n, v         []float64
}

// drawSVG draws the growth on two logarithmic axes. It returns false without any figure.
func (g *growth) drawSVG(r results) (string, bool) {
	var lines []line
	for i, s := range g.sides {
		l := line{name: s.name, colour: colours[i%len(colours)]}
		for _, n := range sizes {
			if v, ok := r.median(s.withSize(n)); ok && v > 0 {
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

// axis maps the logarithms of a range to pixels.
type axis struct{ low, high, from, to float64 }

func (s axis) pixel(v float64) float64 {
	return s.from + (math.Log10(v)-s.low)/(s.high-s.low)*(s.to-s.from)
}

func draw(title, unit string, lines []line, most float64) string {
	x := axis{math.Log10(float64(sizes[0])), math.Log10(float64(sizes[len(sizes)-1])), left, plotWidth - right}
	low, high := math.Inf(1), math.Inf(-1)
	for _, l := range lines {
		low, high = min(low, slices.Min(l.v)), max(high, slices.Max(l.v))
	}
	if most > 0 {
		low, high = min(low, most), max(high, most)
	}
	y := axis{math.Floor(math.Log10(low)), math.Ceil(math.Log10(high)), plotHeight - below, above}
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
		p(`<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#dddddd"/>`, left, y.pixel(v), plotWidth-right, y.pixel(v))
		p(`<text x="%d" y="%.1f" text-anchor="end" fill="#444444">%s</text>`, left-8, y.pixel(v)+4, tick(v, unit))
	}
	for _, n := range sizes {
		p(`<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#dddddd"/>`, x.pixel(float64(n)), above, x.pixel(float64(n)), plotHeight-below)
		p(`<text x="%.1f" y="%d" text-anchor="middle" fill="#444444">%d</text>`, x.pixel(float64(n)), plotHeight-below+20, n)
	}
	p(`<text x="%d" y="%d" text-anchor="middle" fill="#444444">files</text>`, (left+plotWidth-right)/2, plotHeight-12)
	if most > 0 {
		p(`<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#888888" stroke-dasharray="5 4"/>`, left, y.pixel(most), plotWidth-right, y.pixel(most))
	}
	places := labels(lines, y, most)
	for i, l := range lines {
		var points []string
		for j := range l.n {
			points = append(points, fmt.Sprintf("%.1f,%.1f", x.pixel(l.n[j]), y.pixel(l.v[j])))
		}
		p(`<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`, strings.Join(points, " "), l.colour)
		for j := range l.n {
			p(`<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"/>`, x.pixel(l.n[j]), y.pixel(l.v[j]), l.colour)
		}
		p(`<text x="%d" y="%.1f" fill="%s">%s</text>`, plotWidth-right+10, places[i]+4, l.colour, html.EscapeString(l.name))
	}
	if most > 0 {
		p(`<text x="%d" y="%.1f" fill="#666666">target: %s</text>`, plotWidth-right+10, places[len(lines)]+4, text(most, unit))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// labels returns the heights of the names beside the ends of the lines, and then that of the target's
// name. It moves names so that none overlap.
func labels(lines []line, y axis, most float64) []float64 {
	at := make([]float64, 0, len(lines)+1)
	for _, l := range lines {
		at = append(at, y.pixel(l.v[len(l.v)-1]))
	}
	if most > 0 {
		at = append(at, y.pixel(most))
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
	// Move labels that are below the bottom up again.
	for i, bottom := len(order)-1, float64(plotHeight-below+10); i >= 0; i, bottom = i-1, bottom-apart {
		at[order[i]] = min(at[order[i]], bottom)
	}
	return at
}

// tick formats a power of ten of a unit.
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
