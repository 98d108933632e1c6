// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/report/doctor"
	"github.com/jackfield/jackfield/internal/report/status"
)

// lockedBuffer is a buffer for one writer and one reader at the same time.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// openTerminal returns a terminal, and what is written to it.
func openTerminal(t *testing.T) (*os.File, *lockedBuffer) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminals: %v", err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Skipf("no terminals: %v", err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminals: %v", err)
	}
	written := &lockedBuffer{}
	var reader sync.WaitGroup
	reader.Go(func() { _, _ = io.Copy(written, master) }) // ends with an error when the terminal is closed
	t.Cleanup(func() {
		terminal.Close()
		reader.Wait()
		master.Close()
	})
	return terminal, written
}

// socketsAnswer is an answer of jackfield-nri with one socket that was bound again n times.
func socketsAnswer(n int64) string {
	return fmt.Sprintf(`{"registered":true,"sockets":[{"namespace":"telco","pod":"fwd-0","container":"app","containerID":"77e1","path":"/p","hostPath":"/h",
		"state":"bound","since":"2026-01-01T00:00:00Z","rebinds":%d}]}`, n)
}

// Watching prints a result again when it changes. It goes on while the daemon is away, and ends without an error.
func TestWatchPrintsChanges(t *testing.T) {
	root := t.TempDir()
	var rebinds atomic.Int64
	stop := serveStatus(t, root, func() string { return socketsAnswer(rebinds.Load()) })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out, messages lockedBuffer
	status := make(chan int, 1)
	go func() {
		status <- Run(ctx, []string{"sockets", "--root", root, "--watch", "--interval", "1ms", "-o", "yaml"},
			Env{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &messages, Getenv: func(string) string { return "" }})
	}()
	wait := func(b *lockedBuffer, text string, times int) {
		t.Helper()
		if !testkit.Until(func() bool { return strings.Count(b.String(), text) >= times }) {
			t.Fatalf("found\n%s%s\nwant %d times %q", &out, &messages, times, text)
		}
	}
	wait(&out, "rebinds: 0\n", 1)
	rebinds.Store(7)
	wait(&out, "rebinds: 7\n", 1)
	stop()
	wait(&messages, "ask jackfield-nri at /run/jackfield/status.sock", 1) // or two: the last answer may be cut short
	serveStatus(t, root, func() string { return socketsAnswer(rebinds.Load()) })
	wait(&out, "rebinds: 7\n", 2)
	cancel()
	if got := <-status; got != ExitOK {
		t.Errorf("exit status %d: %s", got, &messages)
	}
	if got := strings.Count(out.String(), "rebinds:"); got != 3 {
		t.Errorf("printed %d results, want 3", got)
	}
}

// On a terminal the table stays in its place, and has colours unless the user wants none.
func TestWatchOnTerminalRedrawsInPlace(t *testing.T) {
	for noColor, row := range map[string]string{"": "  \x1b[32mbound\x1b[0m  /h", "1": "  bound  /h"} {
		terminal, written := openTerminal(t)
		root := t.TempDir()
		serveStatus(t, root, func() string { return socketsAnswer(3) })
		ctx, cancel := context.WithCancel(t.Context())
		status := make(chan int, 1)
		var messages lockedBuffer
		go func() {
			status <- Run(ctx, []string{"sockets", "--root", root, "--watch", "--interval", "1ms"}, Env{Stdin: strings.NewReader(""), Stdout: terminal, Stderr: &messages,
				Getenv: func(name string) string { return map[string]string{"NO_COLOR": noColor}[name] }})
		}()
		if !testkit.Until(func() bool { return strings.Count(written.String(), "\x1b[H\x1b[2JCONTAINER") > 2 }) {
			t.Errorf("found %q, want the table three times", written)
		}
		cancel()
		if got := <-status; got != ExitOK {
			t.Errorf("exit status %d: %s", got, &messages)
		}
		if !strings.Contains(written.String(), row) {
			t.Errorf("NO_COLOR=%s: found %q, want %q in it", noColor, written, row)
		}
	}
}

// What is watched in place has no more rows than the terminal, which breaks long lines. Colours take no room.
func TestWatchedTextFitsTheTerminal(t *testing.T) {
	text := "heading\n" + colored(red, "0123456789") + "\n0123456789a\n\nlast\n"
	for rows, want := range map[int]string{0: "", 1: "heading\n", 3: text[:strings.Index(text, "0123456789a")], 4: text[:len(text)-6], 5: text[:len(text)-5], 6: text} {
		if got := firstLines(text, 10, rows); got != want {
			t.Errorf("%d rows: found %q, want %q", rows, got, want)
		}
	}
	if got := firstLines(text, 0, 1); got != text {
		t.Errorf("found %q for a terminal of unknown size, want the whole text", got)
	}
}

// Ages of the table change all the time. A file or pipe has it once.
func TestWatchIgnoresAgesInFiles(t *testing.T) {
	var out bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	asked := 0
	o := output{format: formatText, color: colorAuto}
	err := o.watchResult(ctx, Env{Stdout: &out, Getenv: os.Getenv}, 1, func() (any, string, error) {
		if asked++; asked > 5 {
			cancel()
		}
		return "same", fmt.Sprintln("asked", asked), nil
	})
	if err != nil || out.String() != "asked 1\n" {
		t.Errorf("found %q, %v", &out, err)
	}
}

func TestYAMLHasTheKeysInOrder(t *testing.T) {
	value := struct {
		Z     string         `json:"z"`
		A     []any          `json:"a"`
		Inode uint64         `json:"inode"`
		Empty map[string]any `json:"empty"`
		List  []string       `json:"list"`
	}{"true", []any{1, "no", nil, 1.5, map[string]any{"key": "two\nlines"}}, 1<<64 - 1, map[string]any{}, []string{"\x1b[31m", "\x7f", "a: b", "1e3"}}
	var out bytes.Buffer
	o := output{format: formatYAML}
	if err := o.writeResult(Env{Stdout: &out}, value, nil); err != nil {
		t.Fatal(err)
	}
	const want = `z: "true"
a:
  - 1
  - "no"
  - null
  - 1.5
  - key: |-
      two
      lines
inode: 18446744073709551615
empty: {}
list:
  - "\e[31m"
  - "\x7F"
  - 'a: b'
  - "1e3"
`
	if out.String() != want {
		t.Errorf("found\n%s\nwant\n%s", &out, want)
	}
	var back map[string]any
	if err := yaml.Unmarshal(out.Bytes(), &back); err != nil || back["z"] != "true" {
		t.Errorf("read back %v: %v", back, err)
	}
}

// States have colours. Foreign text has none, whatever it says.
func TestStatesHaveColors(t *testing.T) {
	findings := []doctor.Finding{{Check: "nri", Severity: doctor.Error, Found: "bookkeeping ok"}, {Check: "plugin", Severity: doctor.OK, Found: "  bound \x1b[31mx"}}
	node := &status.Node{Containers: []status.Container{{Pod: "ERROR", Requests: []status.Request{{Request: `CDI device "a"`, Outcome: "refused"}}}}}
	want := "\x1b[31mERROR   \x1b[0m nri            bookkeeping ok\n\x1b[32mok      \x1b[0m plugin           bound \\x1b[31mx\n"
	if got := doctorText(findings, 0); !strings.HasPrefix(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	text := statusText(node, true)
	for _, want := range []string{"\nruntime        \x1b[31mNOT REGISTERED: new", "  CDI device \"a\": \x1b[31mrefused\x1b[0m\n", "\nERROR  "} {
		if !strings.Contains(text, want) {
			t.Errorf("found %q, want %q in it", text, want)
		}
	}
	if got := removeColors(want + text); strings.Contains(got, "\x1b") {
		t.Errorf("found %q without colours", got)
	}
}
