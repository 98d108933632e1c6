// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"errors"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/jsontree"
)

const (
	// maxYAMLDepth bounds the nesting; CDI itself needs 6.
	maxYAMLDepth  = 64
	ruleEmptyFile = "the file is empty; a CDI spec is required"
	ruleTooDeep   = "must not be nested deeper than 64 levels"
	ruleTooMany   = "aliases that stand for too much"
)

// parseYAML returns the tree of a text, which must be one YAML document; further documents
// must be empty. It resolves aliases and merge keys.
func parseYAML(text string) (*jsontree.Node, *diag.Diagnostic) {
	dec := yaml.NewDecoder(strings.NewReader(text))
	var root yaml.Node
	if err := dec.Decode(&root); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, &diag.Diagnostic{Line: 1, Column: 1, Rule: ruleEmptyFile}
		}
		return nil, diag.YAMLError(err)
	}
	for {
		var more yaml.Node
		err := dec.Decode(&more)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			d := diag.YAMLError(err)
			d.Rule = "nothing may follow the end of the spec: " + d.Rule
			return nil, d
		}
		if c := more.Content; len(c) != 1 || c[0].ShortTag() != "!!null" {
			return nil, &diag.Diagnostic{Line: more.Line, Column: more.Column, Rule: "a second document; a CDI spec is one document"}
		}
	}
	if len(root.Content) != 1 {
		return nil, &diag.Diagnostic{Line: 1, Column: 1, Rule: ruleEmptyFile}
	}
	// Without aliases there are at most as many nodes as bytes. The bound stops aliases of
	// aliases.
	c := yamlConverter{left: 4*len(text) + 4096}
	return c.convert(root.Content[0], 0)
}

// yamlConverter makes the tree of a YAML document.
type yamlConverter struct {
	left int // nodes that it may still make
}

func yamlFault(y *yaml.Node, rule string) *diag.Diagnostic {
	return &diag.Diagnostic{Line: y.Line, Column: y.Column, Rule: rule}
}

func (c *yamlConverter) convert(y *yaml.Node, depth int) (*jsontree.Node, *diag.Diagnostic) {
	if depth > maxYAMLDepth {
		return nil, yamlFault(y, ruleTooDeep)
	}
	if c.left--; c.left < 0 {
		return nil, yamlFault(y, ruleTooMany)
	}
	n := &jsontree.Node{Line: y.Line, Column: y.Column}
	switch y.Kind {
	case yaml.AliasNode:
		return c.convert(y.Alias, depth+1)
	case yaml.ScalarNode:
		return n, convertScalar(n, y)
	case yaml.SequenceNode:
		n.Kind = jsontree.Array
		for _, item := range y.Content {
			child, err := c.convert(item, depth+1)
			if err != nil {
				return nil, err
			}
			n.Children = append(n.Children, child)
		}
		return n, nil
	case yaml.MappingNode:
		n.Kind = jsontree.Object
		return n, c.addMembers(n, y, depth)
	}
	return nil, yamlFault(y, "not a value of YAML")
}

func convertScalar(n *jsontree.Node, y *yaml.Node) *diag.Diagnostic {
	if err := checkTag(y); err != nil {
		return err
	}
	n.Text = y.Value
	switch y.ShortTag() {
	case "!!null":
		n.Kind = jsontree.Null
	case "!!bool":
		n.Kind = jsontree.Bool
	case "!!int", "!!float":
		n.Kind = jsontree.Number
	case "!!binary":
		n.Kind = jsontree.String
		if err := y.Decode(&n.Text); err != nil {
			return yamlFault(y, "not base64, which !!binary asks for")
		}
	default:
		n.Kind = jsontree.String
	}
	return nil
}

// checkTag refuses a scalar that is not what its tag says: "!!bool yes".
func checkTag(y *yaml.Node) *diag.Diagnostic {
	if y.Style&yaml.TaggedStyle == 0 || y.ShortTag() == "!!binary" {
		return nil
	}
	var v any
	if err := y.Decode(&v); err != nil {
		return yamlFault(y, "not what its tag "+diag.Quote(y.ShortTag())+" says")
	}
	return nil
}

// addMembers adds the members of the mapping y to n, and those of a merge key.
func (c *yamlConverter) addMembers(n *jsontree.Node, y *yaml.Node, depth int) *diag.Diagnostic {
	var merge *yaml.Node
	for i := 0; i+1 < len(y.Content); i += 2 {
		k, v := y.Content[i], y.Content[i+1]
		for k.Kind == yaml.AliasNode {
			k = k.Alias
		}
		if k.Kind != yaml.ScalarNode {
			return yamlFault(k, "a key must be a string")
		}
		if k.Value == "<<" && (k.Tag == "" || k.Tag == "!" || k.ShortTag() == "!!merge") {
			if merge != nil {
				return yamlFault(k, "duplicate key <<; give it a list")
			}
			merge = v
			continue
		}
		if err := checkTag(k); err != nil {
			return err
		}
		if k.ShortTag() == "!!null" {
			return yamlFault(k, "a key must be a string, not null")
		}
		child, err := c.convert(v, depth+1)
		if err != nil {
			return err
		}
		child.Key, child.KeyLine, child.KeyColumn = k.Value, k.Line, k.Column
		n.Children = append(n.Children, child)
	}
	if merge == nil {
		return nil
	}
	merged, err := c.convert(merge, depth+1)
	if err != nil {
		return err
	}
	present := map[string]bool{}
	for _, child := range n.Children {
		present[child.Key] = true
	}
	return mergeMembers(n, merged, present)
}

// mergeMembers adds the members of a mapping, or of a list of mappings, whose keys are not present.
func mergeMembers(n, merged *jsontree.Node, present map[string]bool) *diag.Diagnostic {
	for _, child := range merged.Children {
		switch {
		case merged.Kind == jsontree.Array:
			if err := mergeMembers(n, child, present); err != nil {
				return err
			}
		case !present[child.Key]:
			present[child.Key] = true
			n.Children = append(n.Children, child)
		}
	}
	if merged.Kind != jsontree.Array && merged.Kind != jsontree.Object {
		return &diag.Diagnostic{Line: merged.Line, Column: merged.Column, Rule: "a merge key takes a mapping or a list of mappings"}
	}
	return nil
}
