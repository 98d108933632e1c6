// SPDX-License-Identifier: Apache-2.0

package jsontree

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/jackfield/jackfield/internal/base/diag"
)

// maxDepth bounds the nesting of arrays and objects.
const maxDepth = 64

// Parse returns the one JSON value that text consists of, or where and why text is not
// JSON. The error names no file.
func Parse(text string) (*Node, *diag.Diagnostic) {
	p := NewStream(text)
	root, _ := p.Next()
	if root == nil {
		line, column := p.position(p.at)
		return nil, &diag.Diagnostic{Line: line, Column: column, Found: "the end of the text",
			Rule: "the text is empty; a JSON value is required"}
	}
	if p.at < len(text) {
		p.addFault("nothing may follow the end of the JSON value")
	}
	if p.fault != nil {
		return nil, p.fault
	}
	return root, nil
}

// Stream parses JSON values that follow one another, such as the versions of one object. Places
// count from the beginning of the text.
//
// It reads text from left to right. Its methods go on after a fault, but read no further child: the
// first fault is the one that is reported.
type Stream struct {
	text  string
	at    int // offset of the next byte
	fault *diag.Diagnostic

	// line and column are the place of offset located, from where position counts on.
	located      int
	line, column int
}

// NewStream returns a stream of the values that text consists of.
func NewStream(text string) *Stream {
	p := &Stream{text: text, line: 1, column: 1}
	p.skipSpace()
	return p
}

// Next returns the next value, or nil at the end of the text. Nothing can be read after a fault.
func (p *Stream) Next() (*Node, *diag.Diagnostic) {
	if p.at == len(p.text) {
		return nil, nil
	}
	value := p.parseValue(0)
	p.skipSpace()
	return value, p.fault
}

// position returns the line and column of an offset. Offsets must not decrease from call to
// call, so that parsing stays linear in the text.
func (p *Stream) position(offset int) (line, column int) {
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

// addFault reports a fault at the next byte, unless there was one before.
func (p *Stream) addFault(rule string) {
	if p.fault == nil {
		p.fault = p.describeFault(rule)
	}
}

// describeFault returns a fault at the current place, with a hint about its probable cause.
func (p *Stream) describeFault(rule string) *diag.Diagnostic {
	d := &diag.Diagnostic{Rule: rule, Found: "the end of the text"}
	d.Line, d.Column = p.position(p.at)
	if p.at == len(p.text) {
		d.Hint = "the text is cut short"
		return d
	}
	r, size := utf8.DecodeRuneInString(p.text[p.at:])
	d.Found = strconv.QuoteRuneToASCII(r)
	// Each case is a mistake that people make in JSON: text of a word processor, of YAML or of JavaScript.
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

func (p *Stream) skipSpace() { p.skipAny(" \n\t\r") }

// skipAny skips bytes as long as they are among those of set.
func (p *Stream) skipAny(set string) {
	for p.at < len(p.text) && strings.IndexByte(set, p.text[p.at]) >= 0 {
		p.at++
	}
}

// isNext reports whether the next byte is c.
func (p *Stream) isNext(c byte) bool { return p.at < len(p.text) && p.text[p.at] == c }

// skipByte skips the next byte if it is c.
func (p *Stream) skipByte(c byte) bool {
	if !p.isNext(c) {
		return false
	}
	p.at++
	return true
}

// parseValue parses a value (RFC 8259).
func (p *Stream) parseValue(depth int) *Node {
	n := &Node{Start: p.at}
	switch {
	case depth > maxDepth:
		p.addFault("must not be nested deeper than " + strconv.Itoa(maxDepth) + " levels")
		return n
	case p.at == len(p.text):
		p.addFault("a value is missing")
		return n
	}
	n.Line, n.Column = p.position(p.at)
	// The first character of a JSON value determines its kind (RFC 8259, section 3).
	switch c := p.text[p.at]; {
	case c == '"':
		n.Kind = String
		n.Text = p.parseString()
	case c == '{':
		n.Kind = Object
		p.parseChildren(n, '}', depth)
	case c == '[':
		n.Kind = Array
		p.parseChildren(n, ']', depth)
	case c == '-' || isDigit(c):
		n.Kind = Number
		p.skipNumber()
		n.Text = p.text[n.Start:p.at]
	default:
		n.Kind, n.Text = p.parseWord()
	}
	n.End = p.at
	return n
}

// parseWord parses null, true or false.
func (p *Stream) parseWord() (Kind, string) {
	for _, word := range []string{"null", "true", "false"} {
		if strings.HasPrefix(p.text[p.at:], word) {
			p.at += len(word)
			if word == "null" {
				return Null, word
			}
			return Bool, word
		}
	}
	p.addFault("a JSON value is required")
	return Null, ""
}

// parseChildren parses the children of an array or object, up to its closing bracket.
func (p *Stream) parseChildren(n *Node, closing byte, depth int) {
	p.at++
	p.skipSpace()
	if p.skipByte(closing) {
		return
	}
	n.Children = make([]*Node, 0, 4) // most have no more than four
	for p.fault == nil {
		n.Children = append(n.Children, p.parseChild(n.Kind, depth))
		p.skipSpace()
		switch {
		case p.skipByte(closing):
			return
		case !p.skipByte(','):
			p.addFault("a comma or " + string(closing) + " is required")
		}
		p.skipSpace()
		if p.isNext(closing) && p.fault == nil {
			p.addFault("a value is required after the comma")
			p.fault.Hint = "remove the comma before it"
		}
	}
}

// parseChild parses one element of an array, or one member of an object.
func (p *Stream) parseChild(kind Kind, depth int) *Node {
	if kind == Array {
		return p.parseValue(depth + 1)
	}
	if !p.isNext('"') {
		p.addFault("a key in double quotation marks is required")
		return &Node{}
	}
	line, column := p.position(p.at)
	key := p.parseString()
	p.skipSpace()
	if !p.skipByte(':') {
		p.addFault("a colon is required after the key " + diag.Quote(key))
		return &Node{}
	}
	p.skipSpace()
	child := p.parseValue(depth + 1)
	child.Key, child.KeyLine, child.KeyColumn = key, line, column
	return child
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// skipNumber skips a number (RFC 8259, section 6). The node keeps its text, so that no digit is lost.
func (p *Stream) skipNumber() {
	p.skipByte('-')
	if !p.skipByte('0') {
		p.skipDigits()
	}
	if p.skipByte('.') {
		p.skipDigits()
	}
	if p.skipByte('e') || p.skipByte('E') {
		_ = p.skipByte('+') || p.skipByte('-')
		p.skipDigits()
	}
}

// skipDigits skips one digit or more.
func (p *Stream) skipDigits() {
	if p.at == len(p.text) || !isDigit(p.text[p.at]) {
		p.addFault("a digit is required")
	}
	p.skipAny("0123456789")
}

// parseString parses the string that begins at the next byte, and returns its value.
func (p *Stream) parseString() string {
	p.at++
	var unescaped []byte // up to the last escape
	for start := p.at; p.at < len(p.text); {
		switch c := p.text[p.at]; {
		case c == '"':
			p.at++
			return string(unescaped) + p.text[start:p.at-1]
		case c < 0x20:
			p.addFault("a control character in a string must be escaped")
			return ""
		case c == '\\':
			r, size := decodeEscape(p.text[p.at:])
			if size == 0 {
				p.addFault("not an escape sequence of JSON")
				return ""
			}
			unescaped = append(unescaped, p.text[start:p.at]...)
			unescaped = utf8.AppendRune(unescaped, r)
			p.at += size
			start = p.at
		default:
			r, size := utf8.DecodeRuneInString(p.text[p.at:])
			if r == utf8.RuneError && size == 1 {
				p.addFault("not valid UTF-8")
				return ""
			}
			p.at += size
		}
	}
	p.addFault("a string is not closed")
	return ""
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
