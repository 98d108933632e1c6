// SPDX-License-Identifier: Apache-2.0

// Package asciicast records what a program prints in a terminal, in the format asciicast v2, and draws a recording as
// an animated SVG. It is for programs that print lines: it knows no control sequences.
package asciicast

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Size of the terminal.
const (
	Columns = 110
	Rows    = 30
)

// Event is a text that a program printed, with the time since the beginning.
type Event struct {
	At   time.Duration
	Text string
}

// Cast is a recording.
type Cast []Event

// header is the first line of the format (asciicast v2).
type header struct {
	Version int    `json:"version"`
	Width   int    `json:"width"`
	Height  int    `json:"height"`
	Title   string `json:"title"`
}

// Run records a program in a terminal.
func Run(ctx context.Context, dir, program string, args ...string) (Cast, error) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer master.Close()
	conn, err := master.SyscallConn()
	if err != nil {
		return nil, err
	}
	var number int
	var failed error
	err = conn.Control(func(fd uintptr) {
		var errs [3]error
		errs[0] = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0)
		number, errs[1] = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		errs[2] = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Col: Columns, Row: Rows})
		failed = errors.Join(errs[:]...)
	})
	if err := errors.Join(err, failed); err != nil {
		return nil, fmt.Errorf("open terminal: %w", err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, terminal, terminal, terminal
	started := time.Now()
	err = errors.Join(cmd.Start(), terminal.Close())
	if err != nil {
		return nil, err
	}
	var cast Cast
	for buffer := make([]byte, 4096); ; {
		n, err := master.Read(buffer)
		cast = append(cast, Event{time.Since(started), string(buffer[:n])})
		// The terminal fails with EIO once the last program has closed it.
		if err != nil {
			if errors.Is(err, unix.EIO) {
				err = nil
			}
			return cast, errors.Join(err, cmd.Wait())
		}
	}
}

// From returns the recording from the first line that begins with a text.
func (c Cast) From(text string) Cast {
	for i, e := range c {
		if at := strings.Index(e.Text, text); at >= 0 {
			rest := Cast{{0, e.Text[at:]}}
			for _, later := range c[i+1:] {
				rest = append(rest, Event{later.At - e.At, later.Text})
			}
			return rest
		}
	}
	return nil
}

// Text returns everything that was printed.
func (c Cast) Text() string {
	var b strings.Builder
	for _, e := range c {
		b.WriteString(e.Text)
	}
	return strings.ReplaceAll(b.String(), "\r\n", "\n")
}

// Encode returns the recording as a file.
func (c Cast) Encode() []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(header{2, Columns, Rows, "make demo"})
	for _, event := range c {
		if event.Text != "" {
			_ = e.Encode([]any{event.At.Round(time.Millisecond).Seconds(), "o", event.Text})
		}
	}
	return b.Bytes()
}

// Decode reads a file of Encode.
func Decode(data []byte) (Cast, error) {
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	var h header
	if err := json.Unmarshal([]byte(lines[0]), &h); err != nil || h.Version != 2 || h.Width != Columns || h.Height != Rows {
		return nil, fmt.Errorf("want asciicast 2 of %d columns and %d rows: %w", Columns, Rows, errors.Join(err, fs.ErrInvalid))
	}
	var cast Cast
	for _, line := range lines[1:] {
		var seconds float64
		var kind, text string
		if err := json.Unmarshal([]byte(line), &[]any{&seconds, &kind, &text}); err != nil {
			return nil, err
		}
		cast = append(cast, Event{time.Duration(seconds * float64(time.Second)), text})
	}
	return cast, nil
}
