// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/wording"
)

// maxDepth is how many maps and lists may lie inside each other.
const maxDepth = 64

// jsonReader walks once over JSON text (RFC 8259) and takes out the little that
// is wanted. encoding/json would fold the case of keys, let the last of
// duplicate keys win, replace what is not UTF-8, and read everything twice.
type jsonReader struct {
	data  []byte
	at    int
	depth int
}

func newJSONReader(data []byte) (*jsonReader, error) {
	r := &jsonReader{data: data}
	if !utf8.Valid(data) {
		return nil, r.fail("it is not UTF-8")
	}
	return r, nil
}

// fail is an error at the present place.
func (r *jsonReader) fail(format string, args ...any) error {
	line := 1 + bytes.Count(r.data[:r.at], []byte("\n"))
	return fmt.Errorf("line %d, byte %d: %s: %w", line, r.at, fmt.Sprintf(format, args...), errdefs.ErrInvalidArgument)
}

// peek is the next byte that is not space, 0 at the end.
func (r *jsonReader) peek() byte {
	for ; r.at < len(r.data); r.at++ {
		switch c := r.data[r.at]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// found describes what is next, for messages.
func (r *jsonReader) found() string {
	switch c := r.peek(); {
	case r.at >= len(r.data):
		return "the end of the text"
	case c == '{':
		return "a map"
	case c == '[':
		return "a list"
	case c == '"':
		return "a string"
	case c == 't', c == 'f':
		return "a boolean"
	case c == 'n':
		return "null"
	case c == '-', c >= '0' && c <= '9':
		return "a number"
	default:
		return fmt.Sprintf("%q", c)
	}
}

// end is for behind the outermost value.
func (r *jsonReader) end() error {
	if r.peek(); r.at < len(r.data) {
		return r.fail("found %s behind the end of the value", r.found())
	}
	return nil
}

// object reads a map. visit must read the value of each key.
func (r *jsonReader) object(visit func(key string) error) error {
	seen := map[string]bool{}
	return r.collection('{', '}', "a map", func(int) error {
		if r.peek() != '"' {
			return r.fail("found %s, want a key", r.found())
		}
		key, err := r.text()
		if err != nil {
			return err
		}
		if seen[key] {
			return r.fail("key %s is there twice", quote(key))
		}
		seen[key] = true
		if r.peek() != ':' {
			return r.fail("found %s, want a colon behind key %s", r.found(), quote(key))
		}
		r.at++
		return visit(key)
	})
}

// array reads a list. visit must read each item.
func (r *jsonReader) array(visit func(i int) error) error {
	return r.collection('[', ']', "a list", visit)
}

func (r *jsonReader) collection(open, shut byte, what string, visit func(i int) error) error {
	if r.peek() != open || r.at >= len(r.data) {
		return r.fail("found %s, want %s", r.found(), what)
	}
	if r.depth++; r.depth > maxDepth {
		return r.fail("more than %d maps and lists inside each other", maxDepth)
	}
	defer func() { r.depth-- }()
	r.at++
	if r.peek() == shut {
		r.at++
		return nil
	}
	for i := 0; ; i++ {
		if err := visit(i); err != nil {
			return err
		}
		switch c := r.peek(); c {
		case ',':
			r.at++
		case shut:
			r.at++
			return nil
		default:
			return r.fail("found %s, want a comma or %q", r.found(), shut)
		}
	}
}

// text reads a string.
func (r *jsonReader) text() (string, error) {
	if r.peek() != '"' {
		return "", r.fail("found %s, want a string", r.found())
	}
	start, escaped := r.at, false
	for i := start + 1; i < len(r.data); i++ {
		switch c := r.data[i]; {
		case c < 0x20:
			r.at = i
			return "", r.fail("a control character in a string")
		case c == '\\':
			escaped = true
			i++
		case c == '"':
			r.at = i + 1
			if !escaped {
				return string(r.data[start+1 : i]), nil
			}
			var s string
			if err := json.Unmarshal(r.data[start:r.at], &s); err != nil {
				r.at = start
				return "", r.fail("%v", err)
			}
			return s, nil
		}
	}
	r.at = len(r.data)
	return "", r.fail("a string without an end")
}

// optionalText reads a string, or null as "".
func (r *jsonReader) optionalText() (string, error) {
	if r.peek() == 'n' {
		return "", r.skip()
	}
	return r.text()
}

// skip reads a value of any kind and forgets it.
func (r *jsonReader) skip() error {
	switch c := r.peek(); {
	case r.at >= len(r.data):
		return r.fail("found the end of the text, want a value")
	case c == '{':
		return r.collection('{', '}', "a map", func(int) error {
			if err := r.skipText(); err != nil {
				return err
			}
			if r.peek() != ':' {
				return r.fail("found %s, want a colon", r.found())
			}
			r.at++
			return r.skip()
		})
	case c == '[':
		return r.collection('[', ']', "a list", func(int) error { return r.skip() })
	case c == '"':
		return r.skipText()
	default:
		return r.skipWord()
	}
}

// skipText is text without a copy.
func (r *jsonReader) skipText() error {
	if r.peek() != '"' {
		return r.fail("found %s, want a string", r.found())
	}
	for i := r.at + 1; i < len(r.data); i++ {
		switch c := r.data[i]; {
		case c < 0x20:
			r.at = i
			return r.fail("a control character in a string")
		case c == '\\':
			n := escapeLen(r.data[i:])
			if n == 0 {
				r.at = i
				return r.fail("an unknown escape in a string")
			}
			i += n - 1
		case c == '"':
			r.at = i + 1
			return nil
		}
	}
	r.at = len(r.data)
	return r.fail("a string without an end")
}

// escapeLen is the length of the escape that b begins with, 0 for none.
func escapeLen(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	if strings.IndexByte(`"\/bfnrt`, b[1]) >= 0 {
		return 2
	}
	if b[1] != 'u' || len(b) < 6 {
		return 0
	}
	for _, c := range b[2:6] {
		if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F') {
			return 0
		}
	}
	return 6
}

// skipWord reads a number, true, false or null.
func (r *jsonReader) skipWord() error {
	end := r.at
	for end < len(r.data) && strings.IndexByte("+-.0123456789abcdefghijklmnopqrstuvwxyzE", r.data[end]) >= 0 {
		end++
	}
	word := r.data[r.at:end]
	if len(word) == 0 || !json.Valid(word) {
		return r.fail("found %s, want a value", r.found())
	}
	r.at = end
	return nil
}

// quote is s for messages.
func quote(s string) string { return wording.Quote(s, wording.Most) }
