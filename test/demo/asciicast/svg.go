// SPDX-License-Identifier: Apache-2.0

package asciicast

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"
	"time"
)

const (
	// Pauses for reading. A recording in real time would be over in two seconds.
	readLine = 150 * time.Millisecond
	readPart = 1500 * time.Millisecond
	readEnd  = 6 * time.Second

	lineHeight, charWidth = 17, 7.8
	width, height         = Columns*charWidth + 24, Rows*lineHeight + 44
)

// line is a row of the terminal.
type line struct {
	text  string
	shown time.Duration
}

// lines returns the rows with the times at which they appear: those of the recording and the pauses for reading.
func (c Cast) lines() (lines []line, end time.Duration) {
	var pause, at time.Duration
	text := ""
	add := func() {
		if strings.HasPrefix(text, "── ") {
			pause += readPart
		}
		pause += readLine
		at = max(at, 0)
		for row := range rows(text) {
			lines = append(lines, line{row, at + pause})
		}
		text = ""
	}
	for _, e := range c {
		at = e.At
		for part := range strings.Lines(strings.ReplaceAll(e.Text, "\r", "")) {
			text += strings.TrimSuffix(part, "\n")
			if strings.HasSuffix(part, "\n") {
				add()
			}
		}
	}
	if text != "" {
		add()
	}
	return lines, at + pause + readEnd
}

// rows yields the rows of the terminal that a line takes.
func rows(text string) func(func(string) bool) {
	return func(yield func(string) bool) {
		rest := []rune(text)
		for len(rest) > Columns {
			if !yield(string(rest[:Columns])) {
				return
			}
			rest = rest[Columns:]
		}
		yield(string(rest))
	}
}

// SVG draws the recording. Each row appears at its time, and the rows move up when the terminal is full. Without
// animations a reader sees the end.
func (c Cast) SVG() []byte {
	lines, end := c.lines()
	var b bytes.Buffer
	percent := func(t time.Duration) float64 { return 100 * float64(t) / float64(end) }
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %d" font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,monospace" font-size="13" role="img" aria-labelledby="t d">
<title id="t">make demo in a terminal</title>
<desc id="d">A pod without volumes or privileges gets a device and two sockets of a vswitch. The vswitch crashes and re-creates its socket, and the running container reaches the new one. A pod of a namespace without a rule is refused.</desc>
<style>
text{fill:#d7dce2;white-space:pre}.h{fill:#7cc4ff;font-weight:bold}.c{fill:#f0c674}
g,text{animation:%.3fs step-end infinite}
@media(prefers-reduced-motion:reduce){g,text{animation:none!important}}
`, width, height, end.Seconds())
	// One rule for all rows that appear together.
	class, names := -1, make([]string, len(lines))
	var scroll strings.Builder
	last := max(0, len(lines)-Rows)
	for i, l := range lines {
		if i == 0 || l.shown != lines[i-1].shown {
			class++
			fmt.Fprintf(&b, "@keyframes k%d{0%%{opacity:0}%.2f%%{opacity:1}}.k%d{animation-name:k%d}\n", class, percent(l.shown), class, class)
		}
		names[i] = fmt.Sprint("k", class)
		if i >= Rows && (i+1 == len(lines) || lines[i+1].shown != l.shown) {
			fmt.Fprintf(&scroll, "%.2f%%{transform:translateY(%dpx)}", percent(l.shown), -(i+1-Rows)*lineHeight)
		}
	}
	fmt.Fprintf(&b, "@keyframes s{0%%{transform:none}%s}.s{animation-name:s;transform:translateY(%dpx)}\n</style>\n", scroll.String(), -last*lineHeight)
	fmt.Fprintf(&b, `<clipPath id="p"><rect y="34" width="%.0f" height="%d"/></clipPath>
<rect width="%.0f" height="%d" rx="8" fill="#1b1f24" stroke="#59636e"/>
<circle cx="18" cy="17" r="5" fill="#59636e"/><circle cx="34" cy="17" r="5" fill="#59636e"/><circle cx="50" cy="17" r="5" fill="#59636e"/><text x="70" y="21">make demo</text>
<g clip-path="url(#p)"><g class="s">
`, width, height-40, width, height)
	for i, l := range lines {
		if strings.TrimSpace(l.text) == "" {
			continue
		}
		style := names[i]
		switch text := strings.TrimSpace(l.text); {
		case strings.HasPrefix(text, "── "):
			style += " h"
		case strings.HasPrefix(text, "$ "):
			style += " c"
		}
		fmt.Fprintf(&b, `<text class="%s" x="12" y="%d" xml:space="preserve">`, style, 34+(i+1)*lineHeight-4)
		_ = xml.EscapeText(&b, []byte(l.text))
		b.WriteString("</text>\n")
	}
	b.WriteString("</g></g>\n</svg>\n")
	return b.Bytes()
}
