// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"strings"
	"unicode/utf8"
)

// nodeKind is the type of a value in a document.
type nodeKind uint8

const (
	kindNull nodeKind = iota
	kindBool
	kindNumber
	kindString
	kindArray
	kindObject
)

// node is one value of a document. Children are a list through next. It holds no
// pointer, so that filling thousands of them costs the collector nothing.
type node struct {
	key   span   // in the object that holds it
	text  span   // of a scalar: its value when a string, its literal otherwise
	pos   uint32 // offset in JSON, line in YAML
	col   uint32 // in YAML
	first int32  // child; -1 without
	next  int32  // sibling; -1 for the last
	count int32  // of children
	kind  nodeKind
	whole bool // of a number in YAML: it is the integer value
	value int64
}

// span is a string of a document: a part of its text, or, when n is elsewhere,
// one of its other strings.
type span struct{ off, n uint32 }

const elsewhere = ^uint32(0)

// document is a parsed text, JSON or YAML, before any meaning is looked at: one
// array of nodes, reused from file to file, in which the first is the root. It
// is what both syntaxes are checked through, by one set of rules.
type document struct {
	nodes []node
	text  string
	yaml  bool
	other []string // what is not in the text as it is
	nul   bool     // one of them has a NUL, which the text itself cannot have
}

const (
	// maxDepth bounds the nesting; CDI itself needs 6.
	maxDepth = 32
	none     = int32(-1)
)

func (d *document) reset(text string, isYAML bool) {
	clear(d.other)
	d.nodes, d.other = d.nodes[:0], d.other[:0]
	if d.nodes == nil && text != "" {
		d.nodes = make([]node, 0, len(text)/12+16) // more than specs need
	}
	d.text, d.yaml, d.nul = text, isYAML, false
}

func (d *document) str(s span) string {
	if s.n == elsewhere {
		return d.other[s.off]
	}
	return d.text[s.off : s.off+s.n]
}

// keep is a span for a string that is not in the text.
func (d *document) keep(s string) span {
	d.nul = d.nul || strings.IndexByte(s, 0) >= 0
	d.other = append(d.other, s)
	return span{uint32(len(d.other) - 1), elsewhere}
}

// add appends a node and gives its index.
func (d *document) add(n node) int32 {
	n.first, n.next = none, none
	d.nodes = append(d.nodes, n)
	return int32(len(d.nodes) - 1)
}

// link makes child the last child of parent; last is the one before, or none.
func (d *document) link(parent, last, child int32) {
	if last == none {
		d.nodes[parent].first = child
	} else {
		d.nodes[last].next = child
	}
	d.nodes[parent].count++
}

// place is the line and column, from 1, of a node.
func (d *document) place(n *node) (line, col int) {
	if d.yaml {
		return int(n.pos), int(n.col)
	}
	return position(d.text, int(n.pos))
}

// position is the line and column, from 1 and in characters, of an offset.
func position(text string, offset int) (line, col int) {
	before := text[:min(offset, len(text))]
	line = strings.Count(before, "\n") + 1
	return line, utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:]) + 1
}

// syntaxError is where and why a text is not JSON, or not YAML.
type syntaxError struct {
	line, col int
	found     string
	rule      string
	deep      bool // nested too deep, which another syntax does not change
}

func (e *syntaxError) diagnostic() Diagnostic {
	return Diagnostic{Line: e.line, Column: e.col, Found: e.found, Rule: e.rule}
}
