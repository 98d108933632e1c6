// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// What word processors put in place of the plain marks " and '.
const (
	doubleQuotes = "“”„‟«»″"
	singleQuotes = "‘’‚‛'`´"
)

const plainRule = "a string in plain double quotes"

// atQuote reports whether any kind of quotation mark is at hand.
func (s *scanner) atQuote() bool {
	r, _ := utf8.DecodeRuneInString(s.rest())
	return s.pos < len(s.src) && (r == '"' || strings.ContainsRune(doubleQuotes+singleQuotes, r))
}

// quoted reads the string at hand, key or value, and repairs what can be
// repaired. parent is the place of the map for a key, of the value itself
// otherwise.
func (s *scanner) quoted(parent *keyPath, isKey bool) string {
	open, n := utf8.DecodeRuneInString(s.rest())
	if open != '"' {
		return s.curly(parent, isKey, open, n)
	}
	start := s.pos
	body, closed := s.body(start + 1)
	end := start + 1 + len(body)
	if closed && s.follows(end+1, isKey) {
		return s.unescape(start+1, body, parent, isKey)
	}
	// It does not go on as it must, so a quotation mark is amiss, or a comma is.
	if i := strings.IndexAny(body, doubleQuotes); i >= 0 {
		_, m := utf8.DecodeRuneInString(body[i:])
		s.pos = start + 1 + i + m
		s.misquoted(start, parent, isKey, body[:i], plainRule, fmt.Sprintf("use plain quotes on both sides: \"%s\"", excerpt(body[:i])))
		return body[:i]
	}
	if closed && !s.attached(end+1) {
		return s.unescape(start+1, body, parent, isKey)
	}
	return s.unbalanced(start, body, closed, parent, isKey)
}

// body is the text from off to the closing quote, or to the end of the line.
func (s *scanner) body(off int) (body string, closed bool) {
	for i := off; i < len(s.src); i++ {
		switch s.src[i] {
		case '\\':
			i++
		case '"':
			return s.src[off:i], true
		case '\n':
			return s.src[off:i], false
		}
		if i < len(s.src) && s.src[i] == '\n' { // escaped by a backslash
			return s.src[off:i], false
		}
	}
	return s.src[off:], false
}

// follows reports whether JSON may go on as it does at off behind a string.
func (s *scanner) follows(off int, isKey bool) bool {
	rest := strings.TrimLeft(s.src[off:], " \t\r\n")
	if isKey {
		return strings.HasPrefix(rest, ":")
	}
	return rest == "" || strings.IndexByte(",]}", rest[0]) >= 0
}

// attached reports whether text goes on right behind a closing quote.
func (s *scanner) attached(off int) bool {
	return off < len(s.src) && strings.IndexByte(" \t\r\n,:{}[]\"", s.src[off]) < 0
}

// unbalanced repairs a string whose closing quote is missing.
func (s *scanner) unbalanced(start int, body string, closed bool, parent *keyPath, isKey bool) string {
	text := strings.TrimRight(body, " \t\r")
	if !closed {
		// What closes the map on the same line is not part of the string.
		text = strings.TrimRight(body, " \t\r,}]")
		if start+1+len(body) == len(s.src) && !strings.ContainsAny(body[len(text):], ",}]") {
			s.endOfFile(parent, "a closing quote")
			return text
		}
	}
	mark := ","
	if isKey {
		mark = ":"
	}
	cut := strings.LastIndex(text, mark)
	if isKey {
		cut = strings.Index(text, mark)
	}
	if (isKey || closed) && cut >= 0 {
		text = text[:cut]
	}
	s.pos = start + 1 + len(text)
	shown := body
	if closed {
		shown += `"`
	}
	text = strings.TrimSpace(text)
	s.add(finding{off: start, key: s.place(parent, text, isKey).String(), found: excerpt(`"` + strings.TrimRight(shown, "\r")),
		rule: "balanced quotes", section: s.section, hint: fmt.Sprintf("add the missing quote: \"%s\"", excerpt(text))})
	s.dead = s.dead || s.full()
	return text
}

// curly reads a string that opens with something else than a plain quote.
func (s *scanner) curly(parent *keyPath, isKey bool, open rune, n int) string {
	start := s.pos
	closers := doubleQuotes + `"`
	if strings.ContainsRune(singleQuotes, open) {
		closers = singleQuotes
	}
	body := s.src[start+n:]
	i := strings.IndexAny(body, closers+"\n")
	if i < 0 || body[i] == '\n' {
		if i >= 0 {
			body = body[:i]
		}
		body = strings.TrimRight(body, " \t\r,}]")
		s.pos = start + n + len(body)
	} else {
		_, m := utf8.DecodeRuneInString(body[i:])
		body = body[:i]
		s.pos = start + n + i + m
	}
	s.misquoted(start, parent, isKey, body, plainRule, fmt.Sprintf("use plain quotes: \"%s\"", excerpt(body)))
	return body
}

func (s *scanner) misquoted(start int, parent *keyPath, isKey bool, text, rule, hint string) {
	s.report(start, s.place(parent, text, isKey), excerpt(s.src[start:s.pos]), rule, hint)
}

func (s *scanner) place(parent *keyPath, text string, isKey bool) *keyPath {
	if isKey {
		return parent.child(text)
	}
	return parent
}

// unescape decodes the body of a well-closed string, and moves behind it.
func (s *scanner) unescape(off int, body string, parent *keyPath, isKey bool) string {
	s.pos = off + len(body) + 1
	if strings.IndexFunc(body, func(r rune) bool { return r < ' ' || r == '\\' }) < 0 {
		return body
	}
	bad := func(i, n int, rule, hint string) {
		n = min(n, len(body)-i)
		s.report(off+i, s.place(parent, body, isKey), excerpt(body[i:i+n]), rule, hint)
	}
	var b strings.Builder
	for i := 0; i < len(body); {
		c := body[i]
		switch {
		case c < ' ':
			bad(i, 1, "no control character inside a string", `write it as \u00XX`)
			i++
			continue
		case c != '\\':
			b.WriteByte(c)
			i++
			continue
		}
		if i+1 < len(body) && body[i+1] == 'u' {
			r, n := unicodeEscape(body[i:])
			if r < 0 {
				bad(i, n, `four hexadecimal digits after \u, and surrogates in pairs`, "")
				r = utf8.RuneError
			}
			b.WriteRune(r)
			i += n
			continue
		}
		k := -1
		if i+1 < len(body) {
			k = strings.IndexByte(`"\/bfnrt`, body[i+1])
		}
		if k < 0 {
			bad(i, 2, `an escape of JSON after the backslash: " \ / b f n r t u`, `a backslash itself is written \\`)
			i++
			continue
		}
		b.WriteByte("\"\\/\b\f\n\r\t"[k])
		i += 2
	}
	return b.String()
}

// unicodeEscape decodes the \uXXXX, or the surrogate pair, that s starts with. r
// is negative when it is none; n bytes belong together.
func unicodeEscape(s string) (r rune, n int) {
	hex4 := func(s string) rune {
		if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
			return -1
		}
		v, err := strconv.ParseUint(s[2:6], 16, 16)
		if err != nil {
			return -1
		}
		return rune(v)
	}
	hi := hex4(s)
	switch {
	case hi < 0:
		return -1, 2
	case !utf16.IsSurrogate(hi):
		return hi, 6
	}
	if r := utf16.DecodeRune(hi, hex4(s[6:])); r != utf8.RuneError {
		return r, 12
	}
	return -1, 6
}
