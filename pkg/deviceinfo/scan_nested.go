// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// mapping reads the map whose "{" is at hand into n.
func (s *scanner) mapping(n *node, path *keyPath) {
	n.kind = kindMap
	n.partial = true // until its end is seen
	partial := false
	s.pos++
	for {
		s.space(path)
		switch {
		case s.dead:
			return
		case s.pos == len(s.src):
			s.endOfFile(path, s.open(n.start, "}"))
			return
		case s.peek() == '}':
			s.pos++
			n.partial = partial
			s.unique(n, path)
			return
		case s.peek() == ',':
			s.report(s.pos, path, `","`, "a key", "delete the comma")
			s.pos++
			continue
		case !s.atKey():
			s.fatal(path, s.token(s.pos), `a key in double quotes, or "}"`, "")
			return
		}
		m, ok := s.member(path)
		n.members = append(n.members, m)
		partial = partial || !ok
		if s.dead {
			return
		}
		s.separator(path, m.value.start, m.value.end, path.child(m.key), '}', s.atKey)
	}
}

// member reads a key and its value. ok is false when the value is a guess.
func (s *scanner) member(parent *keyPath) (m member, ok bool) {
	m.start = s.pos
	if s.atQuote() {
		m.key = s.quoted(parent, true)
	} else {
		m.key = s.word(":")
		s.pos += len(m.key)
		s.report(m.start, parent.child(m.key), excerpt(m.key), "a key in double quotes",
			fmt.Sprintf("write \"%s\"", excerpt(m.key)))
	}
	m.end = s.pos
	path := parent.child(m.key)
	m.value = &node{start: s.pos, end: s.pos}
	if s.dead {
		return m, false
	}
	colon := true
	if s.space(path); s.dead {
		return m, false
	}
	if s.peek() == ':' {
		s.pos++
		s.space(path)
	} else if colon = false; s.pos == len(s.src) {
		s.endOfFile(path, `":" and a value`)
	} else if c := s.peek(); c == ',' || c == '}' {
		s.report(m.end, path, s.token(s.pos), `":" and a value after the key`, pairHint(m.key))
		return m, false
	} else {
		s.report(m.end, path, s.token(s.pos), `":" between the key and its value`, "add the colon")
	}
	if s.dead {
		return m, false
	}
	m.value = s.value(path)
	return m, colon && m.value.kind != kindBad
}

// pairHint is for a key that seems to hold its value as well.
func pairHint(key string) string {
	k, v, ok := strings.Cut(key, ":")
	if !ok {
		return ""
	}
	return fmt.Sprintf("write \"%s\": \"%s\"", excerpt(strings.TrimSpace(k)), excerpt(strings.TrimSpace(v)))
}

func (s *scanner) list(n *node, path *keyPath) {
	n.kind = kindList
	s.pos++
	for {
		s.space(path)
		switch {
		case s.dead:
			return
		case s.pos == len(s.src):
			s.endOfFile(path, s.open(n.start, "]"))
			return
		case s.peek() == ']':
			s.pos++
			return
		case s.peek() == ',':
			s.report(s.pos, path, `","`, "a value", "delete the comma")
			s.pos++
			continue
		case s.peek() == '}' || s.peek() == ':':
			s.fatal(path, s.token(s.pos), `a value, or "]"`, "")
			return
		}
		at := path.item(len(n.items))
		v := s.value(at)
		n.items = append(n.items, v)
		if s.dead {
			return
		}
		s.separator(path, v.start, v.end, at, ']', func() bool { return s.atKey() || s.peek() == '{' || s.peek() == '[' })
	}
}

// separator reads the comma, if any, behind the value src[start:end]. next
// reports whether another member or item is at hand.
func (s *scanner) separator(path *keyPath, start, end int, before *keyPath, closer byte, next func() bool) {
	if s.space(path); s.dead || s.pos == len(s.src) || s.peek() == closer {
		return
	}
	if s.peek() == ',' {
		comma := s.pos
		s.pos++
		if s.space(path); s.peek() == closer && !s.dead {
			s.report(comma, before, fmt.Sprintf(`"," before "%c"`, closer), fmt.Sprintf(`no comma before "%c"`, closer), "delete the comma")
		}
		return
	}
	if !next() {
		s.fatal(path, s.token(s.pos), fmt.Sprintf(`"," or "%c"`, closer), "")
		return
	}
	hint := "add the missing comma"
	if v := s.src[start:end]; len(v) <= maxFound && !strings.ContainsAny(v, "\n{[") {
		hint += " behind " + excerpt(v)
	}
	s.report(end, before, s.token(s.pos)+" after the value", fmt.Sprintf(`"," or "%c"`, closer), hint)
}

// unique reports keys that occur twice in a map.
func (s *scanner) unique(n *node, path *keyPath) {
	if len(n.members) < 2 {
		return
	}
	seen := make(map[string]int, len(n.members))
	for _, m := range n.members {
		first, dup := seen[m.key]
		if !dup {
			seen[m.key] = m.start
			continue
		}
		at := position{src: s.src, line: 1, column: 1}
		at.advance(first)
		s.report(m.start, path.child(m.key), excerpt(s.src[m.start:m.end])+" again", "each key once",
			fmt.Sprintf("the first is at line %d column %d", at.line, at.column))
		if s.dead {
			return
		}
	}
}

// atKey reports whether a key is at hand, be it one without quotes.
func (s *scanner) atKey() bool {
	if s.atQuote() {
		return true
	}
	r, _ := utf8.DecodeRuneInString(s.rest())
	return s.pos < len(s.src) && (r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-')
}
