// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bytes"
	"io"
	"unicode"
	"unicode/utf8"
)

// colorSequences are the escape sequences of jackfield's coloured text.
var colorSequences = []string{"\x1b[31m", "\x1b[33m", "\x1b[32m", "\x1b[39m", "\x1b[0m"}

// redrawSequences are the escape sequences of --watch, whose terminal also ends lines with CR LF.
var redrawSequences = []string{"\x1b[H", "\x1b[2J", "\r\n"}

// answerWriter copies the output of jackfield in the plugin's pod to the user. It replaces control characters, because
// the output is untrusted: it comes from another machine, and quotes annotations and files that tenants write.
type answerWriter struct {
	out     io.Writer
	allowed []string // escape sequences
	rest    []byte   // the incomplete end of the text so far
}

func (w *answerWriter) Write(p []byte) (int, error) {
	text, rest := w.replaceControls(append(w.rest, p...), false)
	w.rest = bytes.Clone(rest)
	if _, err := w.out.Write(text); err != nil {
		return 0, err
	}
	return len(p), nil
}

// flush writes the end of the answer.
func (w *answerWriter) flush() error {
	text, _ := w.replaceControls(w.rest, true)
	w.rest = nil
	_, err := w.out.Write(text)
	return err
}

// replaceControls returns the text without control characters and with the allowed sequences. Unless it is the end of
// the answer, rest is an incomplete sequence or character.
func (w *answerWriter) replaceControls(data []byte, atEnd bool) (text, rest []byte) {
	for len(data) > 0 {
		sequence, complete := w.findSequence(data)
		r, size := utf8.DecodeRune(data)
		switch {
		case complete:
			size = len(sequence)
			text = append(text, sequence...)
		case !atEnd && (sequence != "" || !utf8.FullRune(data)):
			return text, data
		case r == utf8.RuneError && size == 1 || r != '\n' && r != '\t' && !unicode.IsPrint(r):
			text = append(text, '?')
		default:
			text = append(text, data[:size]...)
		}
		data = data[size:]
	}
	return text, nil
}

// findSequence returns the allowed sequence that the data begins with, or of which the data is the beginning.
func (w *answerWriter) findSequence(data []byte) (sequence string, complete bool) {
	for _, s := range w.allowed {
		switch {
		case bytes.HasPrefix(data, []byte(s)):
			return s, true
		case bytes.HasPrefix([]byte(s), data):
			sequence = s
		}
	}
	return sequence, false
}

// plain returns an untrusted text without control characters.
func plain(text string) string {
	var w answerWriter
	clean, _ := w.replaceControls([]byte(text), true)
	return string(clean)
}
