// SPDX-License-Identifier: Apache-2.0

package asciicast

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

func TestProgramIsRecorded(t *testing.T) {
	cast, err := Run(t.Context(), t.TempDir(), "sh", "-c", `echo before; echo "── one"; stty size; exit 0`)
	if err != nil {
		t.Skipf("skipped: no terminal: %v", err)
	}
	if got := cast.From("── one").Text(); got != "── one\n30 110\n" {
		t.Errorf("recorded %q", got)
	}
	again, err := Decode(cast.Encode())
	if err != nil || again.Text() != cast.Text() {
		t.Errorf("%v: %q, want %q", err, again.Text(), cast.Text())
	}
	if cast, err := Run(t.Context(), t.TempDir(), "sh", "-c", "exit 3"); err == nil {
		t.Errorf("a failing program is recorded: %v", cast)
	}
}

func TestOtherRecordingsAreRefused(t *testing.T) {
	for _, text := range []string{"", "{}", `{"version":2,"width":80,"height":30}`, `{"version":2,"width":110,"height":30}` + "\n{}"} {
		if cast, err := Decode([]byte(text)); err == nil {
			t.Errorf("%q is %v", text, cast)
		}
	}
}

// The SVG is well-formed, has every line, wraps long ones, and shows lines in their order.
func TestSVGHasAllLines(t *testing.T) {
	cast := Cast{{0, "a <b> & c\r\n"}, {time.Second, "── part\r\n" + strings.Repeat("x", Columns) + "yyy\r\n\r\nno"}, {2 * time.Second, " end"}}
	svg := cast.SVG()
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v\n%s", err, svg)
		}
	}
	from := 0
	for _, want := range []string{">a &lt;b&gt; &amp; c</text>", ">── part</text>", ">" + strings.Repeat("x", Columns) + "</text>", ">yyy</text>", ">no end</text>"} {
		at := strings.Index(string(svg[from:]), want)
		if at < 0 {
			t.Fatalf("%q is missing or in the wrong place\n%s", want, svg)
		}
		from += at
	}
	lines, end := cast.lines()
	for i := 1; i < len(lines); i++ {
		if lines[i].shown < lines[i-1].shown || lines[i].shown >= end {
			t.Errorf("row %d appears at %v, after %v, of %v", i, lines[i].shown, lines[i-1].shown, end)
		}
	}
}
