// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/jackfield/jackfield/internal/diag"
	"github.com/jackfield/jackfield/internal/jsontree"
)

// maxFaults bounds the faults that are reported of one file.
const maxFaults = 16

// parsedSpec is what was found in the text of a spec file.
type parsedSpec struct {
	spec *specs.Spec // nil where there are faults
	// kind and names of devices are given as far as they could be read.
	kind     string
	names    []string
	faults   []*Diagnostic
	warnings []*Diagnostic
	refs     []hostRef // to the host, where they were asked for
}

// parseSpec reads a spec. It goes on after a fault, so that one run reports all of them.
//
// It tries JSON first. What is not JSON is read as YAML whatever the file is called, as the
// CDI libraries do.
func parseSpec(text string) *parsedSpec { return parseText(text, false) }

func parseText(text string, withRefs bool) *parsedSpec {
	c := &checker{withRefs: withRefs, version: -1}
	root, notJSON, err := c.parseTree(text)
	if err != nil {
		c.faults = []*Diagnostic{err}
		return &c.parsedSpec
	}
	spec := c.decodeSpec(root)
	if len(c.faults) == 0 {
		c.spec = spec
		return &c.parsedSpec
	}
	if notJSON != nil {
		// A comment or a comma too many is YAML, and seldom meant as YAML.
		notJSON.Rule += "; as this is not JSON, the file was read as YAML"
		c.faults = append(c.faults, notJSON)
	}
	diag.List(c.faults).Sort()
	return &c.parsedSpec
}

// parseTree returns the document. The error is that of the syntax which the text looks like;
// notJSON is why a text that looks like JSON was read as YAML.
func (c *checker) parseTree(text string) (root *jsontree.Node, notJSON, err *Diagnostic) {
	root, notJSON = jsontree.Parse(text)
	if notJSON == nil {
		return root, nil, nil
	}
	c.yaml = true
	root, err = parseYAML(text)
	if !strings.HasPrefix(strings.TrimLeft(text, " \t\r\n"), "{") {
		return root, nil, err
	}
	if err != nil {
		return nil, nil, notJSON
	}
	return root, notJSON, nil
}

// checker holds a document to the rules of CDI and fills a specs.Spec from it.
type checker struct {
	parsedSpec
	withRefs bool
	yaml     bool
	version  int    // index of knownVersions; -1 while it is not known
	path     []step // of the field being checked
	early    bool   // in a device that is not the last
}

// step is one part of a field's path: a key, or an index where key is "".
type step struct {
	key   string
	index int
}

func (c *checker) pushField(key string) { c.path = append(c.path, step{key: key}) }
func (c *checker) popField()            { c.path = c.path[:len(c.path)-1] }

// fieldPath returns the current path, with one more key where it is not "".
func (c *checker) fieldPath(key string) string {
	var b strings.Builder
	steps := c.path
	if key != "" {
		steps = append(steps[:len(steps):len(steps)], step{key: plainKey(key)})
	}
	for _, s := range steps {
		switch {
		case s.key == "":
			fmt.Fprintf(&b, "[%d]", s.index)
			continue
		case b.Len() > 0:
			b.WriteByte('.')
		}
		b.WriteString(s.key)
	}
	return b.String()
}

// plainKey returns a key as a path shows it: quoted where it is long or has unusual characters.
func plainKey(key string) string {
	const maxPlain = 65
	if len(key) <= maxPlain && plainFieldPattern.MatchString(key) {
		return key
	}
	return diag.Quote(key, diag.Most)
}

// reject reports that the value n breaks a rule; key names the field where the path does not.
func (c *checker) reject(n *jsontree.Node, key, rule string) { c.report(n, key, describe(n), rule) }

// rejectMissing reports that the object n lacks a field.
func (c *checker) rejectMissing(n *jsontree.Node, key, rule string) { c.report(n, key, "", rule) }

func (c *checker) report(n *jsontree.Node, key, found, rule string) {
	if !c.isFull() {
		c.faults = append(c.faults, &Diagnostic{Line: n.Line, Column: n.Column, Field: c.fieldPath(key), Found: found, Rule: rule})
	}
}

// addWarning reports what does not refuse the file.
func (c *checker) addWarning(n *jsontree.Node, key, rule string) {
	if len(c.warnings) < maxFaults {
		c.warnings = append(c.warnings, &Diagnostic{Line: n.Line, Column: n.Column, Field: c.fieldPath(key), Rule: rule, Severity: diag.SeverityWarning})
	}
}

func (c *checker) isFull() bool { return len(c.faults) >= maxFaults }

// describe returns a value as a message shows it.
func describe(n *jsontree.Node) string {
	switch n.Kind {
	case jsontree.Null:
		return "null"
	case jsontree.String:
		return diag.Quote(n.Text, diag.Most)
	case jsontree.Array:
		return fmt.Sprintf("an array of %d", len(n.Children))
	case jsontree.Object:
		return "an object"
	default:
		return strings.Trim(diag.Quote(n.Text, diag.Most), `"`)
	}
}

// isPresent tells a value from one that is absent or null.
func isPresent(n *jsontree.Node) bool { return n != nil && n.Kind != jsontree.Null }

// countEntries returns the number of entries of an array, 0 for what is absent, and 1 for anything
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

// members finds the members of an object by name: out[k] is that of names[k], or nil. It
// reports false where n is no object.
func (c *checker) members(n *jsontree.Node, names []string, out []*jsontree.Node) bool {
	if n.Kind != jsontree.Object {
		c.reject(n, "", "must be an object")
		return false
	}
next:
	for _, child := range n.Children {
		if c.isFull() {
			break
		}
		for k, name := range names {
			if child.Key == name {
				if out[k] != nil {
					c.report(child, child.Key, "", "duplicate key")
				}
				out[k] = child
				continue next
			}
		}
		c.report(child, child.Key, "", unknownField(child.Key, names))
	}
	return true
}

func unknownField(key string, names []string) string {
	if key == "enableCMT" || key == "enableMBM" {
		return "unknown field: CDI 1.1.0 replaced it by enableMonitoring"
	}
	if near := diag.Nearest(key, names...); near != "" {
		return "unknown field; did you mean " + near + "?"
	}
	return "unknown field; known are " + strings.Join(names, ", ")
}

// decodeList decodes the entries of the array n, which the path names key. It refuses null
// entries.
func decodeList[T any](c *checker, n *jsontree.Node, key string, decode func(*jsontree.Node) T) []T {
	if !isPresent(n) {
		return nil
	}
	if n.Kind != jsontree.Array {
		c.reject(n, key, "must be an array")
		return nil
	}
	if len(n.Children) == 0 {
		return nil
	}
	c.pushField(key)
	defer c.popField()
	out := make([]T, 0, len(n.Children))
	for i, child := range n.Children {
		if c.isFull() {
			break
		}
		c.path = append(c.path, step{index: i})
		if child.Kind == jsontree.Null {
			c.reject(child, "", "an entry must not be null")
		} else {
			out = append(out, decode(child))
		}
		c.popField()
	}
	return out
}

// decodeString returns the string n, and "" where it is absent. Numbers and booleans count as
// their literals, as in the CDI libraries.
func (c *checker) decodeString(n *jsontree.Node, key string) string {
	switch {
	case !isPresent(n):
		return ""
	case n.Kind == jsontree.Array || n.Kind == jsontree.Object:
		c.reject(n, key, "must be a string")
		return ""
	case strings.IndexByte(n.Text, 0) >= 0:
		c.reject(n, key, "must not contain a NUL")
		return ""
	}
	return strings.Clone(n.Text) // the spec does not hold the whole text in memory
}

func (c *checker) decodeStrings(n *jsontree.Node, key string) []string {
	return decodeList(c, n, key, func(n *jsontree.Node) string { return c.decodeString(n, "") })
}

// decodeRequired is decodeString for a field that the object in must have, and not empty.
func (c *checker) decodeRequired(in, n *jsontree.Node, key string) string {
	s := c.decodeString(n, key)
	switch {
	case s != "":
	case n == nil:
		c.rejectMissing(in, key, "is missing")
	case n.Kind == jsontree.Null || n.Text == "" && n.Kind == jsontree.String:
		c.reject(n, key, "must not be empty")
	}
	return s
}

// decodeInteger returns the integer n, which must be from low to high.
func (c *checker) decodeInteger(n *jsontree.Node, key string, low, high int64, rule string) int64 {
	if n.Kind == jsontree.Number {
		parse := parseJSONInteger
		if c.yaml {
			parse = parseYAMLInteger
		}
		if v, ok := parse(n.Text); ok && low <= v && v <= high {
			return v
		}
	}
	c.reject(n, key, rule)
	return low
}

func parseJSONInteger(text string) (int64, bool) {
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
	return wholeNumber(f)
}

// parseYAMLInteger reads an integer in any of YAML's notations.
func parseYAMLInteger(text string) (int64, bool) {
	var v any
	if err := (&yaml.Node{Kind: yaml.ScalarNode, Value: text}).Decode(&v); err != nil {
		return 0, false
	}
	switch v := v.(type) {
	case int:
		return int64(v), true
	case int64:
		return v, true
	case float64:
		return wholeNumber(v)
	}
	return 0, false
}

// wholeNumber refuses fractions, which the CDI libraries cut off without an error.
func wholeNumber(f float64) (int64, bool) {
	if f != math.Trunc(f) || f < -1<<63 || f >= 1<<63 {
		return 0, false
	}
	return int64(f), true
}

// decodeBool returns the boolean n; absent is false. The words of YAML 1.1 count, as in the
// CDI libraries.
func (c *checker) decodeBool(n *jsontree.Node, key string) bool {
	if !isPresent(n) {
		return false
	}
	switch n.Kind {
	case jsontree.Bool:
		return strings.EqualFold(n.Text, "true")
	case jsontree.String:
		switch n.Text {
		case "y", "Y", "yes", "Yes", "YES", "on", "On", "ON":
			return true
		case "n", "N", "no", "No", "NO", "off", "Off", "OFF":
			return false
		}
	}
	c.reject(n, key, "must be true or false")
	return false
}
