// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"encoding/json"
	"strings"
)

// span is a part of a text, from start to before end. The zero value is none.
type span struct{ start, end int }

func (s span) empty() bool           { return s.end == 0 }
func (s span) of(text string) string { return text[s.start:s.end] }

// object is an object of a text, with its members in their order.
type object struct {
	span
	name    string // dotted, for messages
	members []member
}

type member struct {
	key         string
	name, value span
}

// array is a list of a text, with its elements in their order.
type array struct {
	span
	name     string
	elements []span
}

// What follows walks over text that is known to be JSON.

// members lists those of the object at a place.
func members(text string, at span) []member {
	var out []member
	for i := skipSpace(text, at.start+1); text[i] != '}'; {
		m := member{name: span{i, skipValue(text, i)}}
		m.key = unquote(m.name.of(text))
		i = skipSpace(text, skipSpace(text, m.name.end)+1) // over the colon
		m.value = span{i, skipValue(text, i)}
		out = append(out, m)
		i = next(text, m.value.end)
	}
	return out
}

// elements lists those of the list at a place.
func elements(text string, at span) []span {
	var out []span
	for i := skipSpace(text, at.start+1); text[i] != ']'; {
		e := span{i, skipValue(text, i)}
		out = append(out, e)
		i = next(text, e.end)
	}
	return out
}

// next is what follows a value: the next one, or the bracket that ends them.
func next(text string, i int) int {
	if i = skipSpace(text, i); text[i] == ',' {
		i = skipSpace(text, i+1)
	}
	return i
}

func skipSpace(text string, i int) int {
	for i < len(text) && (text[i] == ' ' || text[i] == '\t' || text[i] == '\n' || text[i] == '\r') {
		i++
	}
	return i
}

// skipValue is the end of the value that begins at i.
func skipValue(text string, i int) int {
	for depth := 0; ; {
		switch text[i] {
		case '"':
			i = skipString(text, i)
		case '{', '[':
			depth++
			i++
		case '}', ']':
			depth--
			i++
		case ' ', '\t', '\n', '\r', ',', ':':
			i++
			continue
		default: // a number, true, false or null
			for i < len(text) && strings.IndexByte(" \t\r\n,:]}", text[i]) < 0 {
				i++
			}
		}
		if depth == 0 {
			return i
		}
	}
}

func skipString(text string, i int) int {
	for i++; text[i] != '"'; i++ {
		if text[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// unquote is the value of a string.
func unquote(quoted string) string {
	if strings.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1]
	}
	var s string
	if err := json.Unmarshal([]byte(quoted), &s); err != nil {
		return quoted // no string of a valid text
	}
	return s
}
