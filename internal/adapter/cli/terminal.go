// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// terminalSize returns the columns and rows of the terminal that w is. They are 0 where w is no terminal: text for a
// program is not wrapped.
func terminalSize(w io.Writer) (columns, rows int) {
	f, ok := w.(*os.File)
	if !ok {
		return 0, 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return int(size.Col), int(size.Row)
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// Values of --color.
const (
	colorAuto   = "auto"
	colorAlways = "always"
	colorNever  = "never"
)

// isColored reports whether text has colours.
func (o *output) isColored(env Env) bool {
	if o.color != colorAuto {
		return o.color == colorAlways
	}
	return env.Getenv("NO_COLOR") == "" && env.Getenv("TERM") != "dumb" && isTerminal(env.Stdout)
}

// Colours of the states that people look for in a text. writeResult removes them where the user wants none.
const (
	red      = "\x1b[31m" // bad
	yellow   = "\x1b[33m" // may matter
	green    = "\x1b[32m"
	noColor  = "\x1b[39m" // as long as the others: columns of tables stay in line
	colorEnd = "\x1b[0m"
)

// stateColor returns the colour of a finding of doctor, the outcome of a request, or the state of a socket.
func stateColor(state string) string {
	switch state {
	case "ERROR", "refused", "failed":
		return red
	case "warning", "unknown", "skipped", "not checked", "awaited", "refusing", "removed", "outdated":
		return yellow
	case "ok", "fixed", "injected", "bound":
		return green
	}
	return noColor
}

// colored returns a text in a colour.
func colored(color, text string) string { return color + plain(text) + colorEnd }

// removeColors returns a text without colours. Foreign text has none, because plain escapes it.
func removeColors(text string) string {
	return strings.NewReplacer(red, "", yellow, "", green, "", noColor, "", colorEnd, "").Replace(text)
}

// watchResult prints the result of ask again after each change, until ctx ends. On a terminal the text stays in its
// place. An error ends it the first time; later the daemon may come back.
func (o *output) watchResult(ctx context.Context, env Env, interval time.Duration,
	ask func() (any, string, error)) error {
	inPlace := o.isText() && isTerminal(env.Stdout)
	last := ""
	return repeat(ctx, interval, func() error {
		value, text, err := ask()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !errors.Is(err, errAnswerNo):
			if last == "" {
				return err
			}
			if message := err.Error(); message != last {
				env.message("%v", err)
				last = message
			}
		default:
			data, err := json.Marshal(value)
			if err != nil {
				return err
			}
			changed := string(data) != last // ages change all the time
			last = string(data)
			if inPlace {
				columns, rows := terminalSize(env.Stdout)
				text = "\x1b[H\x1b[2J" + firstLines(text, columns, rows-1)
			}
			if inPlace || changed {
				return o.writeResult(env, value, func() string { return text })
			}
		}
		return nil
	})
}

// repeat calls f in intervals until it fails or ctx ends, which is no error.
func repeat(ctx context.Context, interval time.Duration, f func() error) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if err := f(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// firstLines returns the lines of a text that fit on a terminal, all where its size is not known. The terminal breaks
// long lines.
func firstLines(text string, columns, rows int) string {
	if columns <= 0 {
		return text
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		width := utf8.RuneCountInString(strings.TrimSuffix(removeColors(line), "\n"))
		if rows -= max(1, (width+columns-1)/columns); rows < 0 {
			break
		}
		b.WriteString(line)
	}
	return b.String()
}
