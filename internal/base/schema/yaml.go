// SPDX-License-Identifier: Apache-2.0

package schema

import (
	"errors"
	"io"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/jsontree"
)

// maxDepth bounds the nesting of a document.
const maxDepth = 64

// ParseYAML returns the tree of a text, which is one YAML document; further documents must be empty. It resolves
// aliases and merge keys. An empty text has no tree.
func ParseYAML(text string) (*jsontree.Node, *diag.Diagnostic) {
	root, faults := parseYAML(text, false)
	if len(faults) > 0 {
		return nil, faults[0]
	}
	return root, nil
}

// ParsePlain is like ParseYAML, for a file that people write. It rejects YAML features that obscure the meaning of a
// file: anchors, aliases (and with them documents that grow when decoded), tags, merge keys, and keys of other types
// than string. A date without quotes is a [jsontree.Time]. It returns all faults. Without a tree, the text cannot be
// decoded.
func ParsePlain(text string) (*jsontree.Node, diag.List) {
	return parseYAML(text, true)
}

// parseYAML parses one document; an empty document is nil. A plain document has no anchors, aliases and tags.
func parseYAML(text string, plain bool) (*jsontree.Node, diag.List) {
	decoder := yaml.NewDecoder(strings.NewReader(text))
	var document yaml.Node
	err := decoder.Decode(&document)
	switch {
	case errors.Is(err, io.EOF), err == nil && len(document.Content) == 0:
		return nil, nil
	case err != nil:
		return nil, diag.List{diag.YAMLError(err)}
	}
	if fault := checkEnd(decoder); fault != nil {
		return nil, diag.List{fault}
	}
	// Without aliases there are at most as many nodes as bytes. The bound stops aliases of
	// aliases.
	c := converter{plain: plain, left: 4*len(text) + 4096}
	root := c.convert(document.Content[0], 0)
	if c.isUnusable {
		root = nil
	}
	return root, c.faults
}

// checkEnd checks that nothing but empty documents follows.
func checkEnd(decoder *yaml.Decoder) *diag.Diagnostic {
	for {
		var more yaml.Node
		err := decoder.Decode(&more)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			fault := diag.YAMLError(err)
			fault.Rule = "nothing may follow the end of the document: " + fault.Rule
			return fault
		}
		if c := more.Content; len(c) != 1 || c[0].ShortTag() != "!!null" {
			return &diag.Diagnostic{Line: more.Line, Column: more.Column,
				Rule: "a second YAML document; only one is allowed"}
		}
	}
}

// converter makes the tree of a YAML document.
type converter struct {
	plain      bool
	left       int   // nodes that it may still make
	path       []any // of the current value
	faults     diag.List
	isUnusable bool
}

// reject adds a fault after which the document cannot be decoded. One of the document's size is enough.
func (c *converter) reject(y *yaml.Node, found, rule string) {
	c.isUnusable = true
	c.addFault(y, "", found, rule)
}

func (c *converter) addFault(y *yaml.Node, field, found, rule string) {
	c.faults = append(c.faults, &diag.Diagnostic{Line: y.Line, Column: y.Column, Field: field, Found: found, Rule: rule})
}

// checkMarks rejects anchors, aliases and tags in a plain document.
func (c *converter) checkMarks(y *yaml.Node) {
	switch {
	case !c.plain:
	case y.Kind == yaml.AliasNode:
		c.reject(y, "the alias "+diag.Quote(y.Value), "YAML aliases are not allowed; repeat the value")
	case y.Anchor != "":
		c.reject(y, "the anchor "+diag.Quote(y.Anchor), "YAML anchors are not allowed; repeat the value")
	case y.Style&yaml.TaggedStyle != 0:
		c.reject(y, "the tag "+diag.Quote(y.Tag), "YAML tags are not allowed")
	}
}

// isDone reports whether conversion ends because of a fault.
func (c *converter) isDone() bool { return len(c.faults) > 0 && !c.plain || c.left < 0 }

// convert converts a node and everything below it. It ends at the first fault unless the document is plain.
func (c *converter) convert(y *yaml.Node, depth int) *jsontree.Node {
	n := &jsontree.Node{Line: y.Line, Column: y.Column}
	if c.isDone() {
		return n
	}
	c.left--
	if c.left < 0 || depth > maxDepth {
		rule := "aliases that stand for too much"
		if depth > maxDepth {
			rule = "must not be nested deeper than " + strconv.Itoa(maxDepth) + " levels"
		}
		c.left = -1
		c.reject(y, "", rule)
		return n
	}
	c.checkMarks(y)
	// In a plain tree, checkMarks has already rejected an alias. An expanded alias counts its nodes again, so that
	// nested aliases cannot exceed the limit.
	switch y.Kind {
	case yaml.AliasNode:
		if !c.plain {
			return c.convert(y.Alias, depth+1)
		}
	case yaml.ScalarNode:
		c.convertScalar(n, y)
	case yaml.SequenceNode:
		n.Kind = jsontree.Array
		for i, item := range y.Content {
			n.Children = append(n.Children, c.convertAt(i, item, depth+1))
		}
	case yaml.MappingNode:
		n.Kind = jsontree.Object
		c.addMembers(n, y, depth)
	default:
		c.reject(y, "", "not a value of YAML")
	}
	return n
}

// convertAt converts an element or member of the current value.
func (c *converter) convertAt(keyOrIndex any, y *yaml.Node, depth int) *jsontree.Node {
	c.path = append(c.path, keyOrIndex)
	n := c.convert(y, depth)
	c.path = c.path[:len(c.path)-1]
	return n
}

// convertScalar sets the kind that YAML resolves for a scalar, and its text as written.
func (c *converter) convertScalar(n *jsontree.Node, y *yaml.Node) {
	c.checkTag(y)
	n.Kind, n.Text = jsontree.String, y.Value
	// The tags are those of the core schema of YAML 1.2, and two of YAML 1.1 that the parser resolves.
	switch y.ShortTag() {
	case "!!null":
		n.Kind = jsontree.Null
	case "!!bool":
		n.Kind = jsontree.Bool
	case "!!int", "!!float":
		n.Kind = jsontree.Number
	case "!!timestamp":
		if c.plain {
			n.Kind = jsontree.Time
		}
	case "!!binary":
		if y.Decode(&n.Text) != nil {
			c.reject(y, "", "not base64, which !!binary asks for")
		}
	}
}

// checkTag rejects a scalar whose type differs from its tag, such as "!!bool yes".
func (c *converter) checkTag(y *yaml.Node) {
	if y.Style&yaml.TaggedStyle == 0 || y.ShortTag() == "!!binary" {
		return
	}
	var v any
	if err := y.Decode(&v); err != nil {
		c.reject(y, "", "not what its tag "+diag.Quote(y.ShortTag())+" says")
	}
}

// addMembers adds the members of the mapping y to n, and the members of a merge key.
func (c *converter) addMembers(n *jsontree.Node, y *yaml.Node, depth int) {
	var merge *yaml.Node
	for i := 0; i+1 < len(y.Content) && !c.isDone(); i += 2 {
		k, v := y.Content[i], y.Content[i+1]
		if k.Kind == yaml.ScalarNode && k.Value == "<<" && (k.Tag == "" || k.Tag == "!" || k.ShortTag() == "!!merge") {
			if merge != nil && !c.plain {
				c.reject(k, "", "duplicate key <<; give it a list")
			}
			merge = v
			if c.plain {
				c.addFault(k, jsontree.JoinPath("", c.path...), "the merge key <<",
					"YAML merge keys are not allowed; repeat the keys")
			}
			continue
		}
		c.left++ // for the key
		key := c.convert(k, depth+1)
		if !c.checkKey(k, key) {
			continue
		}
		child := c.convertAt(key.Text, v, depth+1)
		child.Key, child.KeyLine, child.KeyColumn = key.Text, key.Line, key.Column
		n.Children = append(n.Children, child)
	}
	if merge == nil || c.plain {
		return
	}
	present := map[string]bool{}
	for _, child := range n.Children {
		present[child.Key] = true
	}
	c.mergeMembers(n, c.convert(merge, depth+1), present)
}

// checkKey rejects a key that is no string. In a document that is not plain, numbers and booleans are strings.
func (c *converter) checkKey(y *yaml.Node, key *jsontree.Node) bool {
	switch {
	case c.plain && y.Kind != yaml.AliasNode && key.Kind != jsontree.String:
		c.addFault(y, jsontree.JoinPath("", c.path...), Describe(key),
			"a key must be a string; put it in quotes if it is one")
	case key.Kind >= jsontree.Array:
		c.reject(y, "", "a key must be a string")
	case key.Kind == jsontree.Null && !c.isUnusable:
		c.reject(y, "", "a key must be a string, not null")
	default:
		return true
	}
	return false
}

// mergeMembers adds the members of a mapping, or of a list of mappings, whose keys are not present.
func (c *converter) mergeMembers(n, merged *jsontree.Node, present map[string]bool) {
	for _, child := range merged.Children {
		switch {
		case merged.Kind == jsontree.Array:
			c.mergeMembers(n, child, present)
		case !present[child.Key]:
			present[child.Key] = true
			n.Children = append(n.Children, child)
		}
	}
	if merged.Kind != jsontree.Array && merged.Kind != jsontree.Object && !c.isDone() {
		c.faults = append(c.faults, &diag.Diagnostic{Line: merged.Line, Column: merged.Column,
			Rule: "a merge key takes a mapping or a list of mappings"})
	}
}

// ParseInteger reads an integer in any of the notations of YAML, those of JSON among them. It rejects fractions.
func ParseInteger(text string) (int64, bool) {
	if v, err := strconv.ParseInt(text, 10, 64); err == nil && text[0] != '0' { // 010 is octal
		return v, true
	}
	var v any
	if err := (&yaml.Node{Kind: yaml.ScalarNode, Value: text}).Decode(&v); err != nil {
		return 0, false
	}
	switch v := v.(type) {
	case int:
		return int64(v), true
	case int64: // where an int has 32 bits
		return v, true
	case float64:
		return int64(v), v == math.Trunc(v) && v >= -1<<63 && v < 1<<63
	}
	return 0, false
}
