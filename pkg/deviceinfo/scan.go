// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// encoding/json folds the case of keys, lets the last of duplicate keys win and
// stops at the first mistake with nothing but an offset. This scanner keeps
// where everything is, and reads on behind the mistakes that people make when
// they copy the specification's examples, so that one run reports all of them.

type kind uint8

const (
	kindBad kind = iota // reported already; says nothing about the value
	kindNull
	kindBool
	kindNumber
	kindString
	kindList
	kindMap
)

func (k kind) String() string {
	return [...]string{"something unreadable", "null", "a boolean", "a number", "a string", "a list", "a map"}[k]
}

// node is a value and where it is: src[start:end].
type node struct {
	kind       kind
	start, end int
	text       string // of a string, decoded
	members    []member
	items      []*node
	// partial is set on a map of which a part could not be read: that a key is
	// not in it proves nothing.
	partial bool
}

type member struct {
	key        string
	start, end int // of the key in the source, with its quotes
	value      *node
}

// keyPath is the place of a value, innermost first.
type keyPath struct {
	parent *keyPath
	key    string
	named  bool
	index  int // of a list item, which has no name
}

func (p *keyPath) child(key string) *keyPath { return &keyPath{parent: p, key: key, named: true} }
func (p *keyPath) item(i int) *keyPath       { return &keyPath{parent: p, index: i} }

// maxParts keeps the path of a hostile nesting readable.
const maxParts = 8

// String is the dotted path, such as "vdpa.pci-address" or "[3].device-info".
func (p *keyPath) String() string {
	var parts []*keyPath
	for ; p != nil; p = p.parent {
		parts = append(parts, p)
	}
	slices.Reverse(parts)
	var b strings.Builder
	for i, p := range parts {
		switch {
		case i == maxParts:
			b.WriteString(".…")
			return b.String()
		case !p.named:
			fmt.Fprintf(&b, "[%d]", p.index)
		default:
			if i > 0 {
				b.WriteByte('.')
			}
			b.WriteString(excerpt(p.key))
		}
	}
	return b.String()
}

type scanner struct {
	*collector
	src     string
	pos     int
	depth   int
	section string // of the specification that wants the source to be JSON
	dead    bool   // nothing sensible can be read any more
}

// scan reads src as one JSON value of the kind want, a map or a list. The node is
// never nil; it is sound as far as the collector got no errors.
func scan(src, section string, want kind, c *collector) *node {
	s := &scanner{collector: c, src: src, section: section}
	if !utf8.ValidString(src) {
		off := invalidUTF8(src)
		hint := "save the file as UTF-8"
		if strings.HasPrefix(src, "\xff\xfe") || strings.HasPrefix(src, "\xfe\xff") {
			hint = "this is UTF-16; " + hint
		}
		s.report(off, nil, fmt.Sprintf("the byte 0x%02x", src[off]), "text in UTF-8", hint)
		return &node{}
	}
	s.space(nil)
	opener, rule := byte('{'), `a JSON map, which starts with "{"`
	if want == kindList {
		opener, rule = '[', `a JSON list, which starts with "["`
	}
	if s.pos == len(s.src) {
		s.report(0, nil, "an empty file", rule, "")
		return &node{}
	}
	if s.peek() != opener && !s.dead {
		s.report(s.pos, nil, s.token(s.pos), rule, "")
		return &node{}
	}
	n := s.value(nil)
	if !s.dead {
		if s.space(nil); s.pos < len(s.src) {
			s.report(s.pos, nil, s.token(s.pos), "nothing after the end of the JSON value", "")
		}
	}
	return n
}

func invalidUTF8(src string) int {
	for i := 0; i < len(src); {
		r, n := utf8.DecodeRuneInString(src[i:])
		if r == utf8.RuneError && n <= 1 {
			return i
		}
		i += n
	}
	return len(src)
}

func (s *scanner) report(off int, path *keyPath, found, rule, hint string) {
	s.add(finding{off: off, key: path.String(), found: found, rule: rule, section: s.section, hint: hint})
	if s.full() {
		s.dead = true
	}
}

// fatal reports what cannot be read past.
func (s *scanner) fatal(path *keyPath, found, rule, hint string) {
	s.report(s.pos, path, found, rule, hint)
	s.dead = true
}

// peek is the byte at hand, 0 at the end (a NUL in the source is never valid
// where peek is asked).
func (s *scanner) peek() byte {
	if s.pos < len(s.src) {
		return s.src[s.pos]
	}
	return 0
}

func (s *scanner) rest() string { return s.src[s.pos:] }

// space skips white space, and reports what people take for it.
func (s *scanner) space(path *keyPath) {
	for s.pos < len(s.src) {
		switch c := s.src[s.pos]; {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			s.pos++
		case c == '#' || strings.HasPrefix(s.rest(), "//") || strings.HasPrefix(s.rest(), "/*"):
			if !s.comment(path) {
				return
			}
		case c >= utf8.RuneSelf:
			r, n := utf8.DecodeRuneInString(s.rest())
			if !unicode.IsSpace(r) && r != '\ufeff' && r != '\u200b' {
				return
			}
			s.invisible(path, r)
			s.pos += n
		default:
			return
		}
		if s.dead {
			return
		}
	}
}

// invisible reports a character that looks like nothing, and is not white space
// to JSON.
func (s *scanner) invisible(path *keyPath, r rune) {
	if r == '\ufeff' && s.pos == 0 {
		s.report(s.pos, path, "a byte order mark (U+FEFF)", "text that starts with its first character", "save the file as UTF-8 without BOM")
		return
	}
	s.report(s.pos, path, fmt.Sprintf("the invisible character U+%04X", r), "plain spaces between the words of JSON", "delete the character")
}

func (s *scanner) comment(path *keyPath) bool {
	start, end := s.pos, len(s.src)
	if strings.HasPrefix(s.rest(), "/*") {
		i := strings.Index(s.rest(), "*/")
		if i < 0 {
			s.fatal(path, excerpt(s.rest()), "JSON, which has no comments", "delete the comment")
			return false
		}
		end = start + i + 2
	} else if i := strings.IndexByte(s.rest(), '\n'); i >= 0 {
		end = start + i
	}
	s.report(start, path, excerpt(s.src[start:end]), "JSON, which has no comments", "delete the comment")
	s.pos = end
	return !s.dead
}

func (s *scanner) value(path *keyPath) *node {
	n := &node{start: s.pos, end: s.pos}
	switch c := s.peek(); {
	case s.pos == len(s.src):
		s.endOfFile(path, "a value")
	case c == '{' || c == '[':
		if s.depth++; s.depth > MaxDepth {
			s.fatal(path, fmt.Sprintf("a nesting deeper than %d", MaxDepth), fmt.Sprintf("at most %d maps and lists inside each other", MaxDepth), "")
			break
		}
		if c == '{' {
			s.mapping(n, path)
		} else {
			s.list(n, path)
		}
		s.depth--
	case s.atQuote():
		n.kind = kindString
		n.text = s.quoted(path, false)
	default:
		s.bare(n, path)
	}
	n.end = s.pos
	return n
}

// bare reads a number, true, false, null, or text that lacks its quotes.
func (s *scanner) bare(n *node, path *keyPath) {
	word := s.word(",")
	switch {
	case word == "true" || word == "false":
		n.kind = kindBool
	case word == "null":
		n.kind = kindNull
	case validNumber(word):
		n.kind = kindNumber
	case word == "" && s.peek() == ':':
		s.fatal(path, `":"`, "a value", "")
		return
	case word == "":
		s.report(s.pos, path, s.token(s.pos), "a value", "")
		return
	default:
		start := s.pos
		s.pos += len(word)
		if s.peek() == '"' { // the opening quote was forgotten
			s.pos++
		}
		s.report(start, path, excerpt(s.src[start:s.pos]), "a value of JSON", bareHint(word))
		return
	}
	s.pos += len(word)
}

func bareHint(word string) string {
	for _, w := range []string{"true", "false", "null"} {
		if strings.EqualFold(word, w) {
			return "write " + w
		}
	}
	return fmt.Sprintf("text goes in double quotes: \"%s\"", excerpt(word))
}

// word is the run of characters at hand that is neither space, nor quotes, nor
// one of JSON's marks; stop is ":" or "," as further end.
func (s *scanner) word(stop string) string {
	i := strings.IndexFunc(s.rest(), func(r rune) bool {
		return r <= ' ' || strings.ContainsRune(`,{}[]"`, r) || strings.ContainsRune(stop, r) ||
			strings.ContainsRune(doubleQuotes, r) || unicode.IsSpace(r)
	})
	if i < 0 {
		return s.rest()
	}
	return s.rest()[:i]
}

func (s *scanner) endOfFile(path *keyPath, rule string) {
	s.pos = len(s.src)
	s.fatal(path, "the end of the file", rule, "the file is cut short")
}

// open names a bracket that nothing closes.
func (s *scanner) open(off int, closer string) string {
	at := position{src: s.src, line: 1, column: 1}
	at.advance(off)
	return fmt.Sprintf("%q to close what opens at line %d column %d", closer, at.line, at.column)
}

// token is the text at off, as far as it goes together, for messages.
func (s *scanner) token(off int) string {
	if off >= len(s.src) {
		return "the end of the file"
	}
	r, n := utf8.DecodeRuneInString(s.src[off:])
	if strings.ContainsRune(doubleQuotes+`"`, r) {
		if i := strings.IndexAny(s.src[off+n:], "\n\""+doubleQuotes); i >= 0 {
			_, m := utf8.DecodeRuneInString(s.src[off+n+i:])
			return excerpt(strings.TrimRight(s.src[off:off+n+i+m], "\r\n"))
		}
		return excerpt(s.src[off:])
	}
	t := scanner{src: s.src, pos: off}
	if w := t.word(":"); w != "" {
		return excerpt(w)
	}
	return strconv.Quote(string(r))
}

// validNumber reports whether w is a number by the grammar of JSON.
func validNumber(w string) bool {
	w = strings.TrimPrefix(w, "-")
	whole, w := digits(w)
	if whole == "" || len(whole) > 1 && whole[0] == '0' {
		return false
	}
	if frac, ok := strings.CutPrefix(w, "."); ok {
		var d string
		if d, w = digits(frac); d == "" {
			return false
		}
	}
	if w != "" && (w[0] == 'e' || w[0] == 'E') {
		w = w[1:]
		if w != "" && (w[0] == '+' || w[0] == '-') {
			w = w[1:]
		}
		var d string
		if d, w = digits(w); d == "" {
			return false
		}
	}
	return w == ""
}

func digits(s string) (string, string) {
	i := 0
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	return s[:i], s[i:]
}
