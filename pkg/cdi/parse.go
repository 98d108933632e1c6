// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"fmt"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/jsontree"
	"github.com/jackfield/jackfield/internal/base/schema"
)

// maxFaults bounds the faults that are reported of one file.
const maxFaults = 16

// parsedSpec is the content of a spec file, with its faults.
type parsedSpec struct {
	spec *specs.Spec // nil where there are faults
	// kind and names of devices are given as far as they could be read.
	kind     string
	names    []string
	faults   []*diag.Diagnostic
	warnings []*diag.Diagnostic
	refs     []hostRef // to the host, where they were asked for
}

// parseSpec reads a spec. It goes on after a fault, so that one run reports all of them.
//
// It tries JSON first. Any other text is read as YAML, whatever the file is called, as the
// CDI libraries do.
func parseSpec(text string, withRefs bool) parsedSpec {
	c := &checker{withRefs: withRefs, version: -1}
	root, notJSON, err := parseTree(text)
	if err != nil {
		return parsedSpec{faults: []*diag.Diagnostic{err}}
	}
	spec := c.decodeSpec(root)
	if len(c.faults) == 0 {
		c.spec = spec
		return c.parsedSpec
	}
	if notJSON != nil {
		// A comment or a comma too many is YAML, and seldom meant as YAML.
		notJSON.Rule += "; as this is not JSON, the file was read as YAML"
		c.faults = append(c.faults, notJSON)
	}
	diag.List(c.faults).Sort()
	return c.parsedSpec
}

// parseTree returns the document. The error is that of the syntax which the text looks like;
// notJSON is why a text that looks like JSON was read as YAML.
func parseTree(text string) (root *jsontree.Node, notJSON, err *diag.Diagnostic) {
	root, notJSON = jsontree.Parse(text)
	if notJSON == nil {
		return root, nil, nil
	}
	root, err = parseYAML(text)
	if !strings.HasPrefix(strings.TrimLeft(text, " \t\r\n"), "{") {
		return root, nil, err
	}
	if err != nil {
		return nil, nil, notJSON
	}
	return root, notJSON, nil
}

const ruleEmptyFile = "the file is empty; a CDI spec is required"

// parseYAML parses a YAML file. An empty file is a fault, because a CDI file has required keys.
func parseYAML(text string) (*jsontree.Node, *diag.Diagnostic) {
	root, fault := schema.ParseYAML(text)
	if root == nil && fault == nil {
		fault = &diag.Diagnostic{Line: 1, Column: 1, Rule: ruleEmptyFile}
	}
	return root, fault
}

// checker holds a document to the rules of CDI and fills a specs.Spec from it.
type checker struct {
	findings
	withRefs bool
	version  int // index of knownVersions; -1 while it is not known
	devices  int // entries in the list of devices
}

// findings collects the faults of a document, with their places in it.
type findings struct {
	parsedSpec
	path []any // of the value that is decoded, or of the object that is checked: keys and indexes
}

// within calls do for a value below the current path: a member's key, or an element's index.
func (f *findings) within(keyOrIndex any, do func()) {
	f.path = append(f.path, keyOrIndex)
	do()
	f.path = f.path[:len(f.path)-1]
}

// fieldPath returns the current path, with one more key where it is not "".
func (f *findings) fieldPath(key string) string {
	field := jsontree.JoinPath("", f.path...)
	if key != "" {
		field = jsontree.JoinPath(field, plainKey(key))
	}
	return field
}

// plainKey returns a key as a path shows it: quoted where it is long or has unusual characters.
func plainKey(key string) string {
	const maxPlain = 65
	const plain = "-_./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	if len(key) <= maxPlain && strings.Trim(key, plain) == "" {
		return key
	}
	return diag.Quote(key)
}

// reject reports that the value n breaks a rule; key names the field where the path does not.
func (f *findings) reject(n *jsontree.Node, key, rule string) { f.report(n, key, describe(n), rule) }

// report adds a fault at the place of a node. key is its last part, and "" for the node itself.
func (f *findings) report(n *jsontree.Node, key, found, rule string) {
	if !f.isFull() {
		f.faults = append(f.faults, &diag.Diagnostic{Line: n.Line, Column: n.Column, Field: f.fieldPath(key), Found: found,
			Rule: rule})
	}
}

// addWarning adds a finding that does not refuse the file.
func (f *findings) addWarning(n *jsontree.Node, key, rule string) {
	if len(f.warnings) < maxFaults {
		f.warnings = append(f.warnings, &diag.Diagnostic{Line: n.Line, Column: n.Column, Field: f.fieldPath(key), Rule: rule,
			Severity: diag.SeverityWarning})
	}
}

func (f *findings) isFull() bool { return len(f.faults) >= maxFaults }

// describe returns a value as a message shows it.
func describe(n *jsontree.Node) string {
	switch n.Kind {
	case jsontree.String:
		return diag.Quote(n.Text)
	case jsontree.Array:
		return fmt.Sprintf("an array of %d", len(n.Children))
	case jsontree.Null, jsontree.Object:
		return n.Kind.String()
	default:
		return strings.Trim(diag.Quote(n.Text), `"`)
	}
}

// isPresent tells a value from one that is absent or null.
func isPresent(n *jsontree.Node) bool { return n != nil && n.Kind != jsontree.Null }

// countEntries returns the number of entries of an array, 0 for an absent value, and 1 for anything
// else.
func countEntries(n *jsontree.Node) int {
	switch {
	case !isPresent(n):
		return 0
	case n.Kind == jsontree.Array:
		return len(n.Children)
	}
	return 1
}
