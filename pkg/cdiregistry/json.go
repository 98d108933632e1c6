// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"math/bits"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// parseJSON fills d from text, which must be one JSON value (RFC 8259) and
// nothing else. Strings without escapes are slices of text.
func parseJSON(d *document, text string) *syntaxError {
	d.reset(text, false)
	p := jsonParser{d: d, s: text}
	p.space()
	if p.i == len(p.s) {
		return p.fail("an empty file; a CDI spec is wanted")
	}
	if _, err := p.value(0); err != nil {
		return err
	}
	p.space()
	if p.i < len(p.s) {
		return p.fail("data after the end of the spec")
	}
	return nil
}

type jsonParser struct {
	d *document
	s string
	i int
}

func (p *jsonParser) fail(rule string) *syntaxError {
	e := &syntaxError{rule: rule}
	e.line, e.col = position(p.s, p.i)
	if p.i < len(p.s) {
		r, _ := utf8.DecodeRuneInString(p.s[p.i:])
		e.found = strconv.QuoteRune(r)
	} else {
		e.found = "the end of the file"
	}
	return e
}

func (p *jsonParser) space() {
	for p.i < len(p.s) {
		switch p.s[p.i] {
		case ' ', '\n', '\t', '\r':
			p.i++
		default:
			return
		}
	}
}

// value parses one value and gives its node.
func (p *jsonParser) value(depth int) (int32, *syntaxError) {
	if depth > maxDepth {
		err := p.fail("nested deeper than any CDI spec is")
		err.deep = true
		return none, err
	}
	if p.i == len(p.s) {
		return none, p.fail("a value is missing")
	}
	pos := uint32(p.i)
	switch c := p.s[p.i]; {
	case c == '"':
		s, err := p.str()
		if err != nil {
			return none, err
		}
		return p.d.add(node{kind: kindString, text: s, pos: pos}), nil
	case c == '{':
		return p.object(pos, depth)
	case c == '[':
		return p.array(pos, depth)
	case c == '-' || '0' <= c && c <= '9':
		s, err := p.number()
		if err != nil {
			return none, err
		}
		return p.d.add(node{kind: kindNumber, text: s, pos: pos}), nil
	}
	for _, w := range [...]struct {
		text string
		kind nodeKind
	}{{"true", kindBool}, {"false", kindBool}, {"null", kindNull}} {
		if strings.HasPrefix(p.s[p.i:], w.text) {
			p.i += len(w.text)
			return p.d.add(node{kind: w.kind, text: span{pos, uint32(len(w.text))}, pos: pos}), nil
		}
	}
	return none, p.fail("a JSON value is wanted")
}

func (p *jsonParser) object(pos uint32, depth int) (int32, *syntaxError) {
	self := p.d.add(node{kind: kindObject, pos: pos})
	last := none
	p.i++
	p.space()
	if p.i < len(p.s) && p.s[p.i] == '}' {
		p.i++
		return self, nil
	}
	for {
		p.space()
		if p.i == len(p.s) || p.s[p.i] != '"' {
			return none, p.fail("a key in double quotes is wanted")
		}
		key, err := p.str()
		if err != nil {
			return none, err
		}
		p.space()
		if p.i == len(p.s) || p.s[p.i] != ':' {
			return none, p.fail("a colon is wanted after the key " + quote(p.d.str(key)))
		}
		p.i++
		p.space()
		child, err := p.value(depth + 1)
		if err != nil {
			return none, err
		}
		p.d.nodes[child].key = key
		p.d.link(self, last, child)
		last = child
		p.space()
		if p.i < len(p.s) && p.s[p.i] == ',' {
			p.i++
			continue
		}
		if p.i < len(p.s) && p.s[p.i] == '}' {
			p.i++
			return self, nil
		}
		return none, p.fail("a comma or } is wanted")
	}
}

func (p *jsonParser) array(pos uint32, depth int) (int32, *syntaxError) {
	self := p.d.add(node{kind: kindArray, pos: pos})
	last := none
	p.i++
	p.space()
	if p.i < len(p.s) && p.s[p.i] == ']' {
		p.i++
		return self, nil
	}
	for {
		p.space()
		child, err := p.value(depth + 1)
		if err != nil {
			return none, err
		}
		p.d.link(self, last, child)
		last = child
		p.space()
		if p.i < len(p.s) && p.s[p.i] == ',' {
			p.i++
			continue
		}
		if p.i < len(p.s) && p.s[p.i] == ']' {
			p.i++
			return self, nil
		}
		return none, p.fail("a comma or ] is wanted")
	}
}

// number passes over a number and gives its literal.
func (p *jsonParser) number() (span, *syntaxError) {
	start := p.i
	digits := func() bool {
		from := p.i
		for p.i < len(p.s) && '0' <= p.s[p.i] && p.s[p.i] <= '9' {
			p.i++
		}
		return p.i > from
	}
	if p.s[p.i] == '-' {
		p.i++
	}
	if p.i < len(p.s) && p.s[p.i] == '0' {
		p.i++
	} else if !digits() {
		return span{}, p.fail("a digit is wanted")
	}
	if p.i < len(p.s) && p.s[p.i] == '.' {
		p.i++
		if !digits() {
			return span{}, p.fail("a digit is wanted")
		}
	}
	if p.i < len(p.s) && p.s[p.i]|0x20 == 'e' {
		p.i++
		if p.i < len(p.s) && (p.s[p.i] == '+' || p.s[p.i] == '-') {
			p.i++
		}
		if !digits() {
			return span{}, p.fail("a digit is wanted")
		}
	}
	return span{uint32(start), uint32(p.i - start)}, nil
}

// str parses the string that begins here.
func (p *jsonParser) str() (span, *syntaxError) {
	start := p.i + 1
	ascii := true
	for i := start; i < len(p.s); i++ {
		if i += plainBytes(p.s[i:]); i == len(p.s) {
			break
		}
		switch c := p.s[i]; {
		case c == '"':
			if s := p.s[start:i]; !ascii && !utf8.ValidString(s) {
				p.i = start + invalidAt(s)
				return span{}, p.fail("not valid UTF-8")
			}
			p.i = i + 1
			return span{uint32(start), uint32(i - start)}, nil
		case c == '\\':
			return p.escaped(start, i)
		case c < 0x20:
			p.i = i
			return span{}, p.fail("a control character in a string must be escaped")
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	p.i = len(p.s)
	return span{}, p.fail("a string is not closed")
}

// plainBytes is how many bytes s begins with that mean themselves in a string:
// ASCII, and no quote, backslash or control character. It looks at eight at once
// and may stop up to seven bytes early at the end of s.
func plainBytes(s string) int {
	const (
		ones  = 0x0101010101010101
		highs = 0x8080808080808080
	)
	n := 0
	for ; len(s) >= 8; s = s[8:] {
		x := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
			uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
		quotes, slashes := x^(ones*'"'), x^(ones*'\\')
		stop := (x | (quotes-ones)&^quotes | (slashes-ones)&^slashes | (x-ones*0x20)&^x) & highs
		if stop != 0 {
			return n + bits.TrailingZeros64(stop)/8
		}
		n += 8
	}
	return n
}

// escaped goes on with a string from its first escape.
func (p *jsonParser) escaped(start, i int) (span, *syntaxError) {
	b := append(make([]byte, 0, len(p.s[start:i])+32), p.s[start:i]...)
	for i < len(p.s) {
		switch c := p.s[i]; {
		case c == '"':
			if !utf8.Valid(b) {
				p.i = start
				return span{}, p.fail("not valid UTF-8")
			}
			p.i = i + 1
			return p.d.keep(string(b)), nil
		case c < 0x20:
			p.i = i
			return span{}, p.fail("a control character in a string must be escaped")
		case c != '\\':
			b = append(b, c)
			i++
		default:
			r, n := unescape(p.s[i:])
			if n == 0 {
				p.i = i
				return span{}, p.fail("not an escape of JSON")
			}
			b = utf8.AppendRune(b, r)
			i += n
		}
	}
	p.i = len(p.s)
	return span{}, p.fail("a string is not closed")
}

// unescape reads the escape s begins with and how long it is; 0 when it is none.
// A surrogate counts with its partner only.
func unescape(s string) (rune, int) {
	if len(s) < 2 {
		return 0, 0
	}
	switch s[1] {
	case '"', '\\', '/':
		return rune(s[1]), 2
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		r := hex4(s)
		switch {
		case r < 0:
			return 0, 0
		case !utf16.IsSurrogate(r):
			return r, 6
		}
		if r = utf16.DecodeRune(r, hex4(s[6:])); r == utf8.RuneError {
			return 0, 0
		}
		return r, 12
	}
	return 0, 0
}

// hex4 is the number in "\uXXXX", or -1.
func hex4(s string) rune {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return -1
	}
	var r rune
	for _, c := range []byte(s[2:6]) {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// invalidAt is the offset of the first byte that is not UTF-8.
func invalidAt(s string) int {
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return 0
}

// quote shortens and quotes a value for a message.
func quote(s string) string {
	const most = 64
	if len(s) <= most {
		return strconv.Quote(s)
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return strconv.Quote(s[:cut]) + "..."
}
