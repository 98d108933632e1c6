// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"regexp"
	"strings"
	"time"

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

// coloredStates are the states in texts that people look for: bad ones are red, those that may matter yellow.
var coloredStates = []struct {
	color string
	state func() *regexp.Regexp
}{
	{"31", lazyPattern(`(?m)^ERROR\b|: (?:refused|failed)$|\bwould be refused\b|\bNOT REGISTERED\b|\bUNREACHABLE\b|\b\d+ MISSING\b`)},
	{"33", lazyPattern(`(?m)^(?:warning|unknown)\b|: (?:skipped|not checked)\b|  (?:awaited|removed|outdated)\b|\blacks what it requested$`)},
	{"32", lazyPattern(`(?m)^(?:ok|fixed)\b|: injected$|\bregistered with\b|  bound\b`)},
}

// colorText colours the states in a text.
func colorText(text string) string {
	for _, c := range coloredStates {
		text = c.state().ReplaceAllString(text, "\x1b["+c.color+"m$0\x1b[0m")
	}
	return text
}

// watchResult prints the result of ask again after each change, until ctx ends. On a terminal the text stays in its
// place. An error ends it the first time; later the daemon may come back.
func (o *output) watchResult(ctx context.Context, env Env, interval time.Duration, ask func() (any, string, error)) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	inPlace := o.isText() && isTerminal(env.Stdout)
	for last := ""; ; {
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
				_, rows := terminalSize(env.Stdout)
				text = "\x1b[H\x1b[2J" + firstLines(text, rows-1)
			}
			if inPlace || changed {
				if err := o.writeResult(env, value, func() string { return text }); err != nil {
					return err
				}
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// firstLines returns at most n lines of a text, which fit on a terminal; all where n is not positive.
func firstLines(text string, n int) string {
	lines := strings.SplitAfter(text, "\n")
	if n <= 0 || len(lines) <= n {
		return text
	}
	return strings.Join(lines[:n], "")
}
