// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"github.com/jackfield/jackfield/internal/diag"
	"github.com/jackfield/jackfield/internal/jsontree"
)

// parseJSON parses JSON text whose value has the given kind.
func parseJSON(text string, kind jsontree.Kind) (*jsontree.Node, error) {
	root, fault := jsontree.Parse(text)
	if fault != nil {
		return nil, fault
	}
	return root, checkKind(root, kind)
}

// checkKind checks the kind of a value, and that an object has each key once.
func checkKind(n *jsontree.Node, kind jsontree.Kind) error {
	if n.Kind != kind {
		return &diag.Diagnostic{Line: n.Line, Column: n.Column, Field: n.Key, Found: n.Kind.String(), Rule: "must be " + kind.String()}
	}
	if d := n.Duplicate(); d != nil {
		return &diag.Diagnostic{Line: d.KeyLine, Column: d.KeyColumn, Found: quote(d.Key), Rule: "a key must occur only once"}
	}
	return nil
}

// stringMember returns a member of type string, or "" if it is missing or null.
func stringMember(n *jsontree.Node, key string) (string, error) {
	m := n.Member(key)
	if m == nil || m.Kind == jsontree.Null {
		return "", nil
	}
	return m.Text, checkKind(m, jsontree.String)
}

// stringMembers stores the members with the given keys; see stringMember.
func stringMembers(n *jsontree.Node, into map[string]*string) (err error) {
	for key, to := range into {
		if *to, err = stringMember(n, key); err != nil {
			return err
		}
	}
	return nil
}

// quote returns s as messages show it.
func quote(s string) string { return diag.Quote(s, diag.Most) }
