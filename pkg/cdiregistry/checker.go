// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// maxDiagnostics bounds what is kept of one broken file.
const maxDiagnostics = 16

// checker holds a document to the rules of CDI and encodes it on the way. It
// goes on after an error, so that one run tells all that is wrong. It is
// reused from file to file.
type checker struct {
	d     document
	w     blobWriter
	path  []step
	diags []Diagnostic

	warnings []Diagnostic
	early    bool // in a device that is not the last

	notJSON *syntaxError // why what looks like JSON was read as YAML

	version int // index of knownVersions; -1 while unknown
	kind    string
	names   []string
	seen    nameSet // device names
	nets    nameSet // of one edit: host interfaces
	inside  nameSet // of one edit: names in the container
	notes   []note  // of one object
	refs    []hostRef
	useRefs bool
}

// step is one part of a field's path: a key, or an index when key is "".
type step struct {
	key   string
	index int
}

// parse checks text. The blob is valid when there are no diagnostics; kind and
// names are as far as they could be read.
//
// JSON is tried first. What is not JSON is read as YAML whatever the file is
// called, as the CDI libraries do.
func (c *checker) parse(text, path string) piece {
	c.path, c.diags, c.warnings, c.names, c.refs = c.path[:0], nil, nil, c.names[:0], nil
	c.early, c.notJSON = false, nil
	c.version, c.kind = -1, ""
	c.seen.reset()
	c.w.reset()
	if err := c.read(text); err != nil {
		c.diags = []Diagnostic{err.diagnostic()}
		return piece{all: path}
	}
	c.spec()
	if len(c.diags) > 0 {
		if c.notJSON != nil {
			// A comment or a comma too many is YAML, and seldom meant as that.
			c.diags = append(c.diags, c.notJSON.diagnostic())
		}
		sortDiagnostics(c.diags)
		return piece{all: path}
	}
	return c.w.finish(path)
}

// read fills the document; the error is that of the syntax the text looks like.
func (c *checker) read(text string) *syntaxError {
	asJSON := parseJSON(&c.d, text)
	if asJSON == nil || asJSON.deep {
		return asJSON
	}
	asYAML := parseYAML(&c.d, text)
	if strings.HasPrefix(strings.TrimLeft(text, " \t\r\n"), "{") {
		if asYAML != nil {
			return asJSON
		}
		asJSON.rule += "; as this is not JSON, the file was read as YAML"
		c.notJSON = asJSON
	}
	return asYAML
}

// release drops what the checker refers to, before it rests in a pool.
func (c *checker) release() {
	c.d.reset("", false)
	clear(c.names[:cap(c.names)])
	clear(c.notes[:cap(c.notes)])
	c.seen, c.nets, c.inside = nameSet{}, nameSet{}, nameSet{}
	c.names, c.diags, c.warnings, c.refs, c.kind = c.names[:0], nil, nil, nil, ""
	c.notJSON = nil
}

func (c *checker) push(key string)  { c.path = append(c.path, step{key: key}) }
func (c *checker) pushIndex(i int)  { c.path = append(c.path, step{index: i}) }
func (c *checker) pop()             { c.path = c.path[:len(c.path)-1] }
func (c *checker) at(i int32) *node { return &c.d.nodes[i] }

// text is the text of the scalar at node i.
func (c *checker) text(i int32) string { return c.d.str(c.at(i).text) }

// field is the path here, with one key more when it is not "".
func (c *checker) field(key string) string {
	var b strings.Builder
	write := func(s step) {
		if s.key == "" {
			fmt.Fprintf(&b, "[%d]", s.index)
			return
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(s.key)
	}
	for _, s := range c.path {
		write(s)
	}
	if key != "" {
		write(step{key: plainKey(key)})
	}
	return b.String()
}

// plainKey is a key as it is shown in a path: quoted and shortened when it is odd.
func plainKey(key string) string {
	for i := 0; i < len(key); i++ {
		if c := key[i]; !alphanumeric(c) && c != '_' && c != '-' && c != '.' && c != '/' || i > 64 {
			return quote(key)
		}
	}
	return key
}

// bad records that the value at node i breaks a rule; key names a field in it.
func (c *checker) bad(i int32, key, rule string) { c.report(i, key, c.found(i), rule) }

// missing records that the object at node i lacks a field.
func (c *checker) missing(i int32, key, rule string) { c.report(i, key, "", rule) }

func (c *checker) report(i int32, key, found, rule string) {
	if c.full() {
		return
	}
	d := Diagnostic{Field: c.field(key), Found: found, Rule: rule}
	d.Line, d.Column = c.d.place(c.at(i))
	c.diags = append(c.diags, d)
}

// full tells that enough is known of a broken file.
func (c *checker) full() bool { return len(c.diags) >= maxDiagnostics }

// found shows a value in a message.
func (c *checker) found(i int32) string {
	switch n := c.at(i); n.kind {
	case kindNull:
		return "null"
	case kindString:
		return quote(c.text(i))
	case kindArray:
		return fmt.Sprintf("an array of %d", n.count)
	case kindObject:
		return "an object"
	default:
		return strings.Trim(quote(c.text(i)), `"`)
	}
}

// present tells a value that is there from one that is absent or null.
func (c *checker) present(i int32) bool { return i != none && c.at(i).kind != kindNull }

// object looks the fields of an object up by name: out[k] is the node of names[k],
// or none. It is false when there is no object.
func (c *checker) object(i int32, names []string, out []int32) bool {
	for k := range out {
		out[k] = none
	}
	n := c.at(i)
	if n.kind != kindObject {
		c.bad(i, "", "must be an object")
		return false
	}
next:
	for j := n.first; j != none && !c.full(); j = c.at(j).next {
		key := c.d.str(c.at(j).key)
		for k, name := range names {
			if key == name {
				if out[k] != none {
					c.report(j, key, "", "the key is there twice")
				}
				out[k] = j
				continue next
			}
		}
		c.report(j, key, "", unknownField(key, names))
	}
	return true
}

func unknownField(key string, names []string) string {
	if key == "enableCMT" || key == "enableMBM" {
		return "unknown field: CDI 1.1.0 replaced it by enableMonitoring"
	}
	n := newNearest(key, 1)
	for _, name := range names {
		n.add(name)
	}
	if near := n.names(); len(near) > 0 {
		return "unknown field; " + near[0] + " exists"
	}
	return "unknown field; there are " + strings.Join(names, ", ")
}

// items calls f for each entry of the array at node i, with the path set, after
// key, and gives their number. null entries are refused.
func (c *checker) items(i int32, key string, f func(i int32)) int {
	if !c.present(i) {
		return 0
	}
	n := c.at(i)
	if n.kind != kindArray {
		c.bad(i, key, "must be an array")
		return 0
	}
	c.push(key)
	k := 0
	for j := n.first; j != none && !c.full(); j = c.at(j).next {
		c.pushIndex(k)
		if c.at(j).kind == kindNull {
			c.bad(j, "", "an entry must not be null")
		} else {
			f(j)
		}
		c.pop()
		k++
	}
	c.pop()
	return k
}

// str is the string at node i; "" when it is absent. Numbers and booleans count
// as their literals, as they do upstream.
func (c *checker) str(i int32, key string) string {
	if !c.present(i) {
		return ""
	}
	n := c.at(i)
	if n.kind == kindArray || n.kind == kindObject {
		c.bad(i, key, "must be a string")
		return ""
	}
	if c.d.nul && strings.IndexByte(c.text(i), 0) >= 0 {
		c.bad(i, key, "must not contain a NUL")
		return ""
	}
	return c.text(i)
}

// required is str for a field that must be there and not be empty; in is the
// object that must have it.
func (c *checker) required(in, i int32, key string) string {
	s := c.str(i, key)
	if s == "" {
		switch {
		case i == none:
			c.missing(in, key, "is missing")
		case c.at(i).kind == kindNull || c.text(i) == "" && c.at(i).kind == kindString:
			c.bad(i, key, "must not be empty")
		}
	}
	return s
}

// number is the integer at node i, which must be from lo to hi.
func (c *checker) number(i int32, key string, lo, hi int64, rule string) int64 {
	n := c.at(i)
	v, ok := int64(0), false
	if n.kind == kindNumber {
		if v, ok = n.value, n.whole; !c.d.yaml {
			v, ok = jsonInt(c.d.str(n.text))
		}
	}
	if !ok || v < lo || v > hi {
		c.bad(i, key, rule)
		return lo
	}
	return v
}

func jsonInt(text string) (int64, bool) {
	if v, err := strconv.ParseInt(text, 10, 64); err == nil {
		return v, true
	}
	if !strings.ContainsAny(text, ".eE") {
		return 0, false
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, false
	}
	return wholeFloat(f)
}

// wholeFloat refuses fractions, which upstream cuts off in silence.
func wholeFloat(f float64) (int64, bool) {
	if f != math.Trunc(f) || f < -1<<63 || f >= 1<<63 {
		return 0, false
	}
	return int64(f), true
}

// flag is the boolean at node i; absent is false. The words of YAML 1.1 count, as
// they do upstream.
func (c *checker) flag(i int32, key string) bool {
	if !c.present(i) {
		return false
	}
	n := c.at(i)
	switch n.kind {
	case kindBool:
		return strings.EqualFold(c.text(i), "true")
	case kindString:
		switch c.text(i) {
		case "y", "Y", "yes", "Yes", "YES", "on", "On", "ON":
			return true
		case "n", "N", "no", "No", "NO", "off", "Off", "OFF":
			return false
		}
	}
	c.bad(i, key, "must be true or false")
	return false
}

// nameSet finds names that come twice: a short list, which most files need, or a
// map, so that a hostile one costs no more than its size.
type nameSet struct {
	few  []string
	many map[string]struct{}
}

func (s *nameSet) reset() {
	s.few = s.few[:0]
	s.many = nil
}

// add is false when the name is there already.
func (s *nameSet) add(name string) bool {
	if s.many != nil {
		n := len(s.many)
		s.many[name] = struct{}{}
		return len(s.many) > n
	}
	for _, f := range s.few {
		if f == name {
			return false
		}
	}
	if s.few = append(s.few, name); len(s.few) > 32 {
		s.many = make(map[string]struct{}, 4*len(s.few))
		for _, f := range s.few {
			s.many[f] = struct{}{}
		}
	}
	return true
}
