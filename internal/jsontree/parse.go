// SPDX-License-Identifier: Apache-2.0

package jsontree

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/jackfield/jackfield/internal/diag"
)

// maxDepth bounds the nesting of arrays and objects.
const maxDepth = 64

// Parse returns the one JSON value that text consists of, or where and why text is not
// JSON. The error names no file.
func Parse(text string) (*Node, *diag.Diagnostic) {
	p := &parser{text: text, line: 1, column: 1}
	p.skipSpace()
	if p.at == len(text) {
		d := p.faultHere("the text is empty; a JSON value is required")
		d.Hint = ""
		return nil, d
	}
	root, err := p.parseValue(0)
	if err != nil {
		return nil, err
	}
	p.skipSpace()
	if p.at < len(text) {
		return nil, p.faultHere("nothing may follow the end of the JSON value")
	}
	return root, nil
}

// Stream parses JSON values that follow one another, such as the versions of one object. Places
// count from the beginning of the text.
type Stream struct{ p parser }

// NewStream returns a stream of the values that text consists of.
func NewStream(text string) *Stream { return &Stream{parser{text: text, line: 1, column: 1}} }

// Next returns the next value, or nil at the end of the text. Nothing can be read after a fault.
func (s *Stream) Next() (*Node, *diag.Diagnostic) {
	s.p.skipSpace()
	if s.p.at == len(s.p.text) {
		return nil, nil
	}
	return s.p.parseValue(0)
}

type parser struct {
	text string
	at   int // offset of the next byte

	// line and column are the place of offset located, from where position counts on.
	located      int
	line, column int

	free []Node // allocated together
}

func (p *parser) newNode(start int) *Node {
	if len(p.free) == 0 {
		p.free = make([]Node, 32)
	}
	n := &p.free[0]
	p.free = p.free[1:]
	n.Start = start
	return n
}

// position returns the line and column of an offset. Offsets must not decrease from call to
// call, so that parsing stays linear in the text.
func (p *parser) position(offset int) (line, column int) {
	passed := p.text[p.located:offset]
	if newlines := strings.Count(passed, "\n"); newlines > 0 {
		p.line += newlines
		p.column = 1
		passed = passed[strings.LastIndexByte(passed, '\n')+1:]
	}
	p.column += utf8.RuneCountInString(passed)
	p.located = offset
	return p.line, p.column
}

// faultHere reports a fault at the next byte.
func (p *parser) faultHere(rule string) *diag.Diagnostic {
	d := &diag.Diagnostic{Rule: rule, Found: "the end of the text"}
	d.Line, d.Column = p.position(p.at)
	if p.at == len(p.text) {
		if p.at > 0 {
			d.Hint = "the text is cut short"
		}
		return d
	}
	r, size := utf8.DecodeRuneInString(p.text[p.at:])
	d.Found = strconv.QuoteRuneToASCII(r)
	switch {
	case r == utf8.RuneError && size == 1:
		d.Found = fmt.Sprintf("the byte 0x%02x", p.text[p.at])
		d.Hint = "save the file as UTF-8"
	case strings.ContainsRune("\u201c\u201d\u201e\u2018\u2019\u201a\u00ab\u00bb\u2033", r):
		d.Found = strconv.QuoteRune(r)
		d.Hint = `replace the typographic quotation marks by straight ones (")`
	case r == '\'':
		d.Hint = `use double quotation marks (")`
	case r == '\ufeff':
		d.Found, d.Hint = "a byte order mark", "save the file as UTF-8 without a byte order mark"
	case r == '\n':
		d.Hint = "the closing quotation mark is probably missing"
	case r == '#' || strings.HasPrefix(p.text[p.at:], "//") || strings.HasPrefix(p.text[p.at:], "/*"):
		d.Hint = "JSON has no comments"
	}
	return d
}

func (p *parser) skipSpace() {
	for p.at < len(p.text) {
		switch p.text[p.at] {
		case ' ', '\n', '\t', '\r':
			p.at++
		default:
			return
		}
	}
}

// isNext reports whether the next byte is c.
func (p *parser) isNext(c byte) bool { return p.at < len(p.text) && p.text[p.at] == c }

func (p *parser) parseValue(depth int) (*Node, *diag.Diagnostic) {
	if depth > maxDepth {
		return nil, p.faultHere("must not be nested deeper than " + strconv.Itoa(maxDepth) + " levels")
	}
	if p.at == len(p.text) {
		return nil, p.faultHere("a value is missing")
	}
	n := p.newNode(p.at)
	n.Line, n.Column = p.position(p.at)
	var err *diag.Diagnostic
	switch c := p.text[p.at]; {
	case c == '"':
		n.Kind = String
		n.Text, err = p.parseString()
	case c == '{':
		n.Kind = Object
		err = p.parseList(n, '}', depth)
	case c == '[':
		n.Kind = Array
		err = p.parseList(n, ']', depth)
	case c == '-' || isDigit(c):
		n.Kind = Number
		err = p.skipNumber()
		n.Text = p.text[n.Start:p.at]
	default:
		n.Kind, n.Text, err = p.parseWord()
	}
	n.End = p.at
	return n, err
}

func (p *parser) parseWord() (Kind, string, *diag.Diagnostic) {
	for _, word := range [...]struct {
		text string
		kind Kind
	}{{"true", Bool}, {"false", Bool}, {"null", Null}} {
		if strings.HasPrefix(p.text[p.at:], word.text) {
			p.at += len(word.text)
			return word.kind, word.text, nil
		}
	}
	return Null, "", p.faultHere("a JSON value is required")
}

// parseList parses the children of an array or object, up to its closing bracket.
func (p *parser) parseList(n *Node, closing byte, depth int) *diag.Diagnostic {
	p.at++
	p.skipSpace()
	if p.isNext(closing) {
		p.at++
		return nil
	}
	for {
		child, err := p.parseChild(n.Kind, depth)
		if err != nil {
			return err
		}
		n.Children = append(n.Children, child)
		p.skipSpace()
		switch {
		case p.isNext(','):
			p.at++
			p.skipSpace()
			if p.isNext(closing) {
				d := p.faultHere("a value is required after the comma")
				d.Hint = "remove the comma before it"
				return d
			}
		case p.isNext(closing):
			p.at++
			return nil
		default:
			return p.faultHere("a comma or " + string(closing) + " is required")
		}
	}
}

// parseChild parses one element of an array, or one member of an object.
func (p *parser) parseChild(kind Kind, depth int) (*Node, *diag.Diagnostic) {
	if kind == Array {
		return p.parseValue(depth + 1)
	}
	if !p.isNext('"') {
		return nil, p.faultHere("a key in double quotation marks is required")
	}
	line, column := p.position(p.at)
	key, err := p.parseString()
	if err != nil {
		return nil, err
	}
	p.skipSpace()
	if !p.isNext(':') {
		return nil, p.faultHere("a colon is required after the key " + diag.Quote(key, diag.Most))
	}
	p.at++
	p.skipSpace()
	child, err := p.parseValue(depth + 1)
	if err != nil {
		return nil, err
	}
	child.Key, child.KeyLine, child.KeyColumn = key, line, column
	return child, nil
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func (p *parser) skipDigits() bool {
	start := p.at
	for p.at < len(p.text) && isDigit(p.text[p.at]) {
		p.at++
	}
	return p.at > start
}

func (p *parser) skipNumber() *diag.Diagnostic {
	if p.isNext('-') {
		p.at++
	}
	if p.isNext('0') {
		p.at++
	} else if !p.skipDigits() {
		return p.faultHere("a digit is required")
	}
	if p.isNext('.') {
		p.at++
		if !p.skipDigits() {
			return p.faultHere("a digit is required")
		}
	}
	if p.isNext('e') || p.isNext('E') {
		p.at++
		if p.isNext('+') || p.isNext('-') {
			p.at++
		}
		if !p.skipDigits() {
			return p.faultHere("a digit is required")
		}
	}
	return nil
}

// parseString parses the string that begins at the next byte, and returns its value.
func (p *parser) parseString() (string, *diag.Diagnostic) {
	p.at++
	start := p.at
	var unescaped []byte // nil up to the first escape
	for p.at < len(p.text) {
		switch c := p.text[p.at]; {
		case c == '"':
			value := p.text[start:p.at]
			if unescaped != nil {
				value = string(append(unescaped, value...))
			}
			p.at++
			return value, nil
		case c < 0x20:
			return "", p.faultHere("a control character in a string must be escaped")
		case c == '\\':
			r, size := decodeEscape(p.text[p.at:])
			if size == 0 {
				return "", p.faultHere("not an escape sequence of JSON")
			}
			unescaped = append(unescaped, p.text[start:p.at]...)
			unescaped = utf8.AppendRune(unescaped, r)
			p.at += size
			start = p.at
		case c < utf8.RuneSelf:
			p.at++
		default:
			r, size := utf8.DecodeRuneInString(p.text[p.at:])
			if r == utf8.RuneError && size == 1 {
				return "", p.faultHere("not valid UTF-8")
			}
			p.at += size
		}
	}
	return "", p.faultHere("a string is not closed")
}

// decodeEscape returns the character of the escape sequence that s begins with, and the
// sequence's length; 0 where it is none. A surrogate needs its partner.
func decodeEscape(s string) (rune, int) {
	if len(s) < 2 {
		return 0, 0
	}
	if i := strings.IndexByte(`"\/bfnrt`, s[1]); i >= 0 {
		return rune("\"\\/\b\f\n\r\t"[i]), 2
	}
	r := decodeHex(s)
	switch {
	case r < 0:
		return 0, 0
	case !utf16.IsSurrogate(r):
		return r, 6
	}
	if r = utf16.DecodeRune(r, decodeHex(s[6:])); r == utf8.RuneError {
		return 0, 0
	}
	return r, 12
}

// decodeHex returns the number of "\uXXXX" at the beginning of s, or -1.
func decodeHex(s string) rune {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return -1
	}
	n, err := strconv.ParseUint(s[2:6], 16, 16)
	if err != nil {
		return -1
	}
	return rune(n)
}
