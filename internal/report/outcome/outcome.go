// SPDX-License-Identifier: Apache-2.0

// Package outcome describes the outcome of each request of a container for logs and for the output of commands.
package outcome

import "github.com/jackfield/jackfield/internal/engine"

// MaxLines is how many lines about single requests of a container are logged. A pod's author can write as many requests
// as an annotation holds.
const MaxLines = 16

// Line is a line about one request. Its level is debug, info or warning.
type Line struct{ Level, Request, Text, Reason string }

// String returns the line as one text.
func (l Line) String() string {
	text := l.Request + ": " + l.Text
	if l.Reason != "" {
		text += ": " + l.Reason
	}
	return text
}

// Describe returns a line for each request that was not injected and for each note on a request, and the injected
// requests with their files and rules.
func Describe(items []engine.Item) (lines []Line, injected []string) {
	for i := range items {
		it := &items[i]
		if it.Audit != "" {
			lines = append(lines, Line{"warning", it.Request, "mode enforce would deny this request", it.Audit})
		}
		switch it.Outcome {
		case engine.Injected:
			rule := "no rule" // needed, because nothing of the host is accessible through it
			if it.Rule != "" {
				rule = "rule " + it.Rule
			}
			injected = append(injected, it.Request+" from "+it.File+" by "+rule)
			for _, n := range it.Notes {
				lines = append(lines, Line{"info", it.Request, n, ""})
			}
		case engine.Present:
			lines = append(lines, Line{"debug", it.Request, "present already", ""})
		case engine.Unmanaged:
			lines = append(lines, Line{"info", it.Request, "unmanaged", it.Reason})
		case engine.Skipped:
			lines = append(lines, Line{"warning", it.Request, "optional request skipped", it.Reason})
		}
	}
	return lines, injected
}
