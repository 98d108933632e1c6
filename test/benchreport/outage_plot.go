// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// The plot of outages is a bar for each row, in groups of equal setups. Sizes are in pixels.
const (
	outageWidth               = 940
	outageLeft, outageRight   = 340, 150
	outageAbove, outageBelow  = 62, 40
	barHeight, barStep, group = 13, 18, 14
)

// bar is one row of the plot.
type bar struct {
	*outageRow
	outageFigures
	y      int
	starts bool // a group
}

// drawSVG draws the times of the first packets on a linear axis. It returns false without any figure.
func (t *outages) drawSVG(r results) (string, bool) {
	var bars []bar
	y, longest, setup := outageAbove, 0.0, ""
	for i := range t.rows {
		o, ok := t.rows[i].readFigures(r)
		if !ok {
			continue
		}
		b := bar{outageRow: &t.rows[i], outageFigures: o}
		if s := b.setup(); s != setup {
			if setup != "" {
				y += group
			}
			setup, b.starts = s, true
		}
		b.y = y
		y += barStep
		longest = max(longest, o.high, o.bridge)
		bars = append(bars, b)
	}
	if len(bars) == 0 {
		return "", false
	}
	return drawOutages(t.title, bars, y+outageBelow, max(math.Ceil(longest/1e9), 1)), true
}

func (w *outageRow) setup() string {
	return strings.ReplaceAll(w.vswitch+", "+w.port+", database "+w.database, "`", "")
}

// drawOutages draws the bars on an axis of the given number of seconds.
func drawOutages(title string, bars []bar, height int, seconds float64) string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	x := func(ns float64) float64 {
		return outageLeft + min(ns/1e9/seconds, 1)*(outageWidth-outageLeft-outageRight)
	}
	p(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`,
		outageWidth, height)
	p(`<title>%s</title>`, html.EscapeString(title))
	p(`<rect width="%d" height="%d" fill="#ffffff"/>`, outageWidth, height)
	p(`<text x="20" y="26" font-size="16" fill="#222222">%s</text>`, html.EscapeString(title))
	bottom := height - outageBelow
	for s := 0.0; s <= seconds; s++ {
		p(`<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#dddddd"/>`, x(s*1e9), outageAbove-6, x(s*1e9), bottom)
		p(`<text x="%.1f" y="%d" text-anchor="middle" fill="#444444">%.0f s</text>`, x(s*1e9), bottom+18, s)
	}
	var parties []string
	at := outageLeft
	for _, c := range bars {
		if slices.Contains(parties, c.by) {
			continue
		}
		parties = append(parties, c.by)
		p(`<rect x="%d" y="38" width="11" height="11" fill="%s"/>`, at, colourOf(parties, c.by))
		p(`<text x="%d" y="48" fill="#444444">%s</text>`, at+16, html.EscapeString(c.by))
		at += 130
	}
	p(`<line x1="%d" y1="37" x2="%d" y2="50" stroke="#222222" stroke-width="2"/>`, at, at)
	p(`<text x="%d" y="48" fill="#444444">the bridge exists</text>`, at+8)
	for _, c := range bars {
		if c.starts {
			p(`<text x="%d" y="%d" text-anchor="end" fill="#222222">%s</text>`,
				outageLeft-10, c.y+11, html.EscapeString(c.setup()))
		}
		colour := colourOf(parties, c.by)
		middle := float64(c.y) + barHeight/2.0
		if !c.recovered {
			p(`<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="%s" stroke-width="2" stroke-dasharray="6 5"/>`,
				outageLeft, middle, outageWidth-outageRight, middle, colour)
			p(`<text x="%d" y="%.1f" fill="%s">never in %s</text>`,
				outageWidth-outageRight+8, middle+4, colour, text(c.never, "ns"))
			continue
		}
		p(`<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`,
			outageLeft, c.y, x(c.first)-outageLeft, barHeight, colour)
		p(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#888888" stroke-width="2"/>`,
			x(c.low), middle, x(c.high), middle)
		p(`<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#222222" stroke-width="2"/>`,
			x(c.bridge), c.y-1, x(c.bridge), c.y+barHeight+1)
		p(`<text x="%.1f" y="%.1f" fill="#222222">%s</text>`, x(max(c.high, c.bridge))+6, middle+4, text(c.first, "ns"))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// colourOf returns the colour of a party.
func colourOf(parties []string, by string) string {
	return colours[slices.Index(parties, by)%len(colours)]
}
