// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"errors"
	"io"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// parseYAML fills d from text, which must be one YAML document; further
// documents must be empty. Aliases and merge keys are resolved here.
func parseYAML(d *document, text string) *syntaxError {
	d.reset(text, true)
	dec := yaml.NewDecoder(strings.NewReader(text))
	var root yaml.Node
	if err := dec.Decode(&root); err != nil {
		if errors.Is(err, io.EOF) {
			return &syntaxError{line: 1, col: 1, rule: "an empty file; a CDI spec is wanted"}
		}
		return yamlSyntax(err)
	}
	for {
		var more yaml.Node
		err := dec.Decode(&more)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			e := yamlSyntax(err)
			e.rule = "data after the end of the spec: " + e.rule
			return e
		}
		if c := more.Content; len(c) != 1 || c[0].ShortTag() != "!!null" {
			return &syntaxError{line: more.Line, col: more.Column, rule: "a second document; a CDI spec is one document"}
		}
	}
	if len(root.Content) != 1 {
		return &syntaxError{line: 1, col: 1, rule: "an empty file; a CDI spec is wanted"}
	}
	// Without aliases there are at most as many nodes as bytes. The bound stops
	// aliases of aliases.
	c := yamlConverter{d: d, left: 4*len(text) + 4096}
	_, err := c.value(root.Content[0], 0)
	return err
}

// yamlSyntax takes the line out of the decoder's message.
func yamlSyntax(err error) *syntaxError {
	rule := strings.TrimPrefix(err.Error(), "yaml: ")
	if len(rule) > 200 {
		rule = strings.ToValidUTF8(rule[:200], "") + "..."
	}
	e := &syntaxError{rule: "not YAML: " + rule}
	if at, ok := strings.CutPrefix(rule, "line "); ok {
		if n, text, ok := strings.Cut(at, ": "); ok {
			if line, err := strconv.Atoi(n); err == nil {
				e.line, e.rule = line, "not YAML: "+text
			}
		}
	}
	return e
}

type yamlConverter struct {
	d    *document
	left int // nodes that may still come
}

func (c *yamlConverter) fail(y *yaml.Node, rule string) *syntaxError {
	return &syntaxError{line: y.Line, col: y.Column, rule: rule}
}

func (c *yamlConverter) value(y *yaml.Node, depth int) (int32, *syntaxError) {
	if depth > maxDepth {
		return none, c.fail(y, "nested deeper than any CDI spec is")
	}
	if c.left--; c.left < 0 {
		return none, c.fail(y, "aliases that stand for too much")
	}
	n := node{pos: uint32(y.Line), col: uint32(y.Column)}
	switch y.Kind {
	case yaml.AliasNode:
		return c.value(y.Alias, depth+1)
	case yaml.ScalarNode:
		if err := c.scalar(&n, y); err != nil {
			return none, err
		}
		return c.d.add(n), nil
	case yaml.SequenceNode:
		n.kind = kindArray
		self, last := c.d.add(n), none
		for _, item := range y.Content {
			child, err := c.value(item, depth+1)
			if err != nil {
				return none, err
			}
			c.d.link(self, last, child)
			last = child
		}
		return self, nil
	case yaml.MappingNode:
		n.kind = kindObject
		self := c.d.add(n)
		m := yamlMapping{c: c, self: self, last: none}
		return self, m.fill(y, depth, nil)
	}
	return none, c.fail(y, "not a value of YAML")
}

func (c *yamlConverter) scalar(n *node, y *yaml.Node) *syntaxError {
	if err := c.tagged(y); err != nil {
		return err
	}
	n.text = c.d.keep(y.Value)
	switch y.ShortTag() {
	case "!!null":
		n.kind = kindNull
	case "!!bool":
		n.kind = kindBool
	case "!!int", "!!float":
		n.kind = kindNumber
		n.value, n.whole = yamlInt(y)
	case "!!binary":
		n.kind = kindString
		var plain string
		if err := y.Decode(&plain); err != nil {
			return c.fail(y, "not base64, which !!binary asks for")
		}
		n.text = c.d.keep(plain)
	default:
		n.kind = kindString
	}
	return nil
}

// tagged refuses a scalar that is not what its tag says it is: "!!bool yes".
func (c *yamlConverter) tagged(y *yaml.Node) *syntaxError {
	if y.Style&yaml.TaggedStyle == 0 || y.ShortTag() == "!!binary" {
		return nil
	}
	var v any
	if err := y.Decode(&v); err != nil {
		return c.fail(y, "not what its tag "+quote(y.ShortTag())+" says")
	}
	return nil
}

// yamlMapping collects the entries of one mapping and of what is merged into it.
type yamlMapping struct {
	c    *yamlConverter
	self int32
	last int32
}

// fill adds the entries of y; those whose keys own holds already are left out,
// which is how merged entries give way.
func (m *yamlMapping) fill(y *yaml.Node, depth int, own map[string]bool) *syntaxError {
	if depth > maxDepth {
		return m.c.fail(y, "nested deeper than any CDI spec is")
	}
	merged := own != nil
	var merges []*yaml.Node
	for i := 0; i+1 < len(y.Content); i += 2 {
		k, v := y.Content[i], y.Content[i+1]
		for k.Kind == yaml.AliasNode {
			k = k.Alias
		}
		if k.Kind != yaml.ScalarNode {
			return m.c.fail(k, "a key must be a string")
		}
		if k.Value == "<<" && (k.Tag == "" || k.Tag == "!" || k.ShortTag() == "!!merge") {
			if len(merges) > 0 {
				return m.c.fail(k, "the key << is there twice; give it a list")
			}
			merges = append(merges, v)
			continue
		}
		if err := m.c.tagged(k); err != nil {
			return err
		}
		if k.ShortTag() == "!!null" {
			return m.c.fail(k, "a key must be a string, not null")
		}
		if merged {
			if own[k.Value] {
				continue
			}
			own[k.Value] = true
		}
		child, err := m.c.value(v, depth+1)
		if err != nil {
			return err
		}
		n := &m.c.d.nodes[child]
		n.key = m.c.d.keep(k.Value)
		m.c.d.link(m.self, m.last, child)
		m.last = child
	}
	if len(merges) == 0 {
		return nil
	}
	if !merged {
		own = map[string]bool{}
		for i := m.c.d.nodes[m.self].first; i != none; i = m.c.d.nodes[i].next {
			own[m.c.d.str(m.c.d.nodes[i].key)] = true
		}
	}
	for _, v := range merges {
		if err := m.merge(v, depth+1, own); err != nil {
			return err
		}
	}
	return nil
}

// merge adds what a merge key names: a mapping, or a list of them.
func (m *yamlMapping) merge(v *yaml.Node, depth int, own map[string]bool) *syntaxError {
	if depth > maxDepth {
		return m.c.fail(v, "nested deeper than any CDI spec is")
	}
	if m.c.left--; m.c.left < 0 {
		return m.c.fail(v, "aliases that stand for too much")
	}
	switch v.Kind {
	case yaml.AliasNode:
		return m.merge(v.Alias, depth+1, own)
	case yaml.MappingNode:
		return m.fill(v, depth, own)
	case yaml.SequenceNode:
		for _, item := range v.Content {
			if err := m.merge(item, depth+1, own); err != nil {
				return err
			}
		}
		return nil
	}
	return m.c.fail(v, "a merge key takes a mapping or a list of mappings")
}

// yamlInt is the integer a scalar stands for, in any of YAML's notations.
func yamlInt(y *yaml.Node) (int64, bool) {
	var v any
	if err := y.Decode(&v); err != nil {
		return 0, false
	}
	switch v := v.(type) {
	case int:
		return int64(v), true
	case int64:
		return v, true
	case float64:
		return wholeFloat(v)
	}
	return 0, false
}
