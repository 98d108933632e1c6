// SPDX-License-Identifier: Apache-2.0

package hooksd

import (
	"strings"

	"github.com/jackfield/jackfield/internal/base/jsontree"
)

// schema lists the types of the values of a hook file (oci-hooks(5), schema 1.0.0), in the terms of
// [jsonTypeName].
var schema = []struct {
	field    string
	typeName string
}{
	{"version", "a string"},
	{"hook", "an object"}, {"hook.path", "a string"}, {"hook.args", "a list of strings"},
	{"hook.env", "a list of strings"},
	{"hook.timeout", "a whole number"},
	{"when", "an object"}, {"when.always", "true or false"}, {"when.annotations", "an object"},
	{"when.commands", "a list of strings"},
	{"when.hasBindMounts", "true or false"},
	{"stages", "a list of strings"},
}

// checkTypes adds an error for each value of a wrong type, and reports whether there is one.
func (p *parser) checkTypes() bool {
	p.mistyped = map[string]bool{}
	for _, s := range schema {
		n := p.root
		for key := range strings.SplitSeq(s.field, ".") {
			if n != nil {
				n = n.Member(key)
			}
		}
		if n == nil || n.Kind == jsontree.Null {
			continue
		}
		if !hasType(n, s.typeName) {
			p.rejectType(n, s.field, s.typeName)
			continue
		}
		for i, child := range n.Children {
			inList, inObject := s.typeName == "a list of strings", s.field == "when.annotations"
			if !inList && !inObject || child.Kind == jsontree.String || child.Kind == jsontree.Null {
				continue
			}
			field := indexField(s.field, i)
			if inObject {
				field = s.field + "." + child.Key
			}
			p.rejectType(child, field, "a string")
		}
	}
	return len(p.mistyped) > 0
}

func (p *parser) rejectType(n *jsontree.Node, field, typeName string) {
	p.mistyped[field] = true
	p.addError(n, field, n.Kind.String(), "must be "+typeName)
}

// hasType reports whether a value has the type of a jsonTypeName.
func hasType(n *jsontree.Node, typeName string) bool {
	switch typeName {
	case "a string":
		return n.Kind == jsontree.String
	case "true or false":
		return n.Kind == jsontree.Bool
	case "a whole number":
		return n.Kind == jsontree.Number && !strings.ContainsAny(n.Text, ".eE")
	case "a list of strings":
		return n.Kind == jsontree.Array
	}
	return n.Kind == jsontree.Object
}
