// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
)

// tomlStatement is one table header or one key with its value in a TOML document,
// by place, so that a document can be edited and keep its comments.
type tomlStatement struct {
	path       []string // from the root of the document
	header     bool
	end        int // after its line
	value      string
	valueStart int // of a header: where that is
}

// tomlStatements finds the statements of a document. It reads all of TOML's strings,
// arrays and inline tables to pass over them, and refuses what it does not
// understand rather than edit it.
func tomlStatements(text string) ([]tomlStatement, error) {
	s := tomlScanner{text: text}
	var (
		out   []tomlStatement
		table []string
	)
	for {
		s.blank(true)
		if s.i == len(text) {
			return out, nil
		}
		var st tomlStatement
		if text[s.i] == '[' {
			list := strings.HasPrefix(text[s.i:], "[[")
			closing := "]"
			if list {
				closing = "]]"
			}
			at := s.i
			s.i += len(closing)
			keys, err := s.keys()
			if err != nil {
				return nil, err
			}
			if !strings.HasPrefix(text[s.i:], closing) {
				return nil, s.fail("want " + closing)
			}
			s.i += len(closing)
			if list {
				// Each is a table of its own, which nothing here looks for.
				keys = append(keys, "[["+strconv.Itoa(s.i)+"]]")
			}
			table = keys
			st = tomlStatement{path: keys, header: true, valueStart: at}
		} else {
			keys, err := s.keys()
			if err != nil {
				return nil, err
			}
			if s.i == len(text) || text[s.i] != '=' {
				return nil, s.fail("want = after the key")
			}
			s.i++
			s.blank(false)
			start := s.i
			if err := s.value(0); err != nil {
				return nil, err
			}
			st = tomlStatement{path: append(slices.Clone(table), keys...), value: strings.TrimSpace(text[start:s.i]), valueStart: start}
		}
		if err := s.lineEnd(); err != nil {
			return nil, err
		}
		st.end = s.i
		out = append(out, st)
	}
}

type tomlScanner struct {
	text string
	i    int
}

func (s *tomlScanner) fail(why string) error {
	line := strings.Count(s.text[:min(s.i, len(s.text))], "\n") + 1
	return fmt.Errorf("line %d: not TOML as it is understood here: %s: %w", line, why, errdefs.ErrInvalidArgument)
}

// blank passes over spaces, and over lines and comments where these may be.
func (s *tomlScanner) blank(lines bool) {
	for s.i < len(s.text) {
		switch c := s.text[s.i]; {
		case c == ' ' || c == '\t':
			s.i++
		case lines && (c == '\n' || c == '\r'):
			s.i++
		case lines && c == '#':
			s.comment()
		default:
			return
		}
	}
}

func (s *tomlScanner) comment() {
	if n := strings.IndexByte(s.text[s.i:], '\n'); n >= 0 {
		s.i += n
	} else {
		s.i = len(s.text)
	}
}

func (s *tomlScanner) lineEnd() error {
	s.blank(false)
	if s.i < len(s.text) && s.text[s.i] == '#' {
		s.comment()
	}
	if strings.HasPrefix(s.text[s.i:], "\r\n") {
		s.i++
	}
	switch {
	case s.i == len(s.text):
	case s.text[s.i] == '\n':
		s.i++
	default:
		return s.fail("something behind the value")
	}
	return nil
}

// keys reads a dotted key.
func (s *tomlScanner) keys() ([]string, error) {
	var out []string
	for {
		s.blank(false)
		start := s.i
		switch {
		case s.i == len(s.text):
			return nil, s.fail("want a key")
		case s.text[s.i] == '"' || s.text[s.i] == '\'':
			quote := s.text[s.i]
			if err := s.str(); err != nil {
				return nil, err
			}
			raw := s.text[start:s.i]
			if strings.HasPrefix(raw, `"""`) || strings.HasPrefix(raw, `'''`) {
				return nil, s.fail("a key in three quotes")
			}
			key := raw[1 : len(raw)-1]
			if quote == '"' {
				var err error
				if key, err = strconv.Unquote(raw); err != nil {
					return nil, s.fail("the key " + raw)
				}
			}
			out = append(out, key)
		default:
			for s.i < len(s.text) && isBareKey(s.text[s.i]) {
				s.i++
			}
			if s.i == start {
				return nil, s.fail("want a key")
			}
			out = append(out, s.text[start:s.i])
		}
		s.blank(false)
		if s.i == len(s.text) || s.text[s.i] != '.' {
			return out, nil
		}
		s.i++
	}
}

func isBareKey(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-'
}

// str passes over a string of any of the four kinds.
func (s *tomlScanner) str() error {
	quote := s.text[s.i : s.i+1]
	if triple := strings.Repeat(quote, 3); strings.HasPrefix(s.text[s.i:], triple) {
		quote = triple
	}
	for i := s.i + len(quote); i < len(s.text); i++ {
		switch {
		case s.text[i] == '\\' && quote[0] == '"':
			i++
		case s.text[i] == '\n' && len(quote) == 1:
			return s.fail("a string is not closed")
		case strings.HasPrefix(s.text[i:], quote):
			i += len(quote)
			// Up to two more quotes belong to a string in three.
			for n := 0; len(quote) == 3 && n < 2 && i < len(s.text) && s.text[i] == quote[0]; n++ {
				i++
			}
			s.i = i
			return nil
		}
	}
	return s.fail("a string is not closed")
}

// value passes over a value.
func (s *tomlScanner) value(depth int) error {
	if s.i == len(s.text) || depth > 64 {
		return s.fail("want a value")
	}
	switch c := s.text[s.i]; c {
	case '"', '\'':
		return s.str()
	case '[', '{':
		closing := c + 2 // in ASCII both are
		for s.i++; ; {
			s.blank(true)
			switch {
			case s.i == len(s.text):
				return s.fail("a list or table is not closed")
			case s.text[s.i] == closing:
				s.i++
				return nil
			case s.text[s.i] == ',' || s.text[s.i] == '=':
				s.i++
			default:
				if err := s.value(depth + 1); err != nil {
					return err
				}
			}
		}
	default:
		start := s.i
		for s.i < len(s.text) && !strings.ContainsRune(",]}=#\n\r\"'", rune(s.text[s.i])) {
			s.i++
		}
		if strings.TrimSpace(s.text[start:s.i]) == "" {
			return s.fail("want a value")
		}
		return nil
	}
}
