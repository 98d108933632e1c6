// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"math"
	"reflect"
	"slices"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/jsontree"
	"github.com/jackfield/jackfield/internal/base/schema"
)

// fieldNames are the names in JSON of the fields of each struct in a specs.Spec.
var fieldNames = addFieldNames(map[reflect.Type][]string{}, reflect.TypeFor[specs.Spec]())

// addFieldNames adds the JSON keys of a type, and of the types of its fields.
func addFieldNames(names map[reflect.Type][]string, t reflect.Type) map[reflect.Type][]string {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return addFieldNames(names, t.Elem())
	case reflect.Struct:
		names[t] = nil
		for i := range t.NumField() {
			name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
			names[t] = append(names[t], name)
			addFieldNames(names, t.Field(i).Type)
		}
	}
	return names
}

// decode fills a part of a specs.Spec from the value n, which the current path names. It reports a
// value of another type, and leaves out null.
func (c *checker) decode(n *jsontree.Node, into reflect.Value) {
	if n.Kind == jsontree.Null {
		return
	}
	// These are all kinds of fields in the types of specs-go.
	switch into.Kind() {
	case reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		c.decode(n, into.Elem())
	case reflect.Struct:
		c.decodeObject(n, into)
	case reflect.Slice:
		c.decodeList(n, into)
	case reflect.Map:
		into.Set(reflect.ValueOf(c.decodeAnnotations(n)))
	case reflect.String:
		into.SetString(c.decodeString(n))
	case reflect.Bool:
		into.SetBool(c.decodeBool(n))
	case reflect.Uint32:
		into.SetUint(uint64(c.decodeInteger(n)))
	default:
		into.SetInt(c.decodeInteger(n))
	}
}

// decodeObject decodes an object, and checks it by the rules for its type.
func (c *checker) decodeObject(n *jsontree.Node, into reflect.Value) {
	if n.Kind != jsontree.Object {
		c.reject(n, "", "must be an object")
		return
	}
	names := fieldNames[into.Type()]
	seen := make([]bool, len(names))
	for _, child := range n.Children {
		if c.isFull() {
			break
		}
		i := slices.Index(names, child.Key)
		if i < 0 {
			c.report(child, child.Key, "", unknownField(child.Key, names))
			continue
		}
		if seen[i] {
			c.report(child, child.Key, "", "duplicate key")
		}
		seen[i] = true
		c.within(child.Key, func() { c.decode(child, into.Field(i)) })
	}
	c.checkObject(n, into.Addr().Interface())
}

// unknownField returns the rule that an unknown key violates, with the nearest known key.
func unknownField(key string, names []string) string {
	if key == "enableCMT" || key == "enableMBM" {
		return "unknown field: CDI 1.1.0 replaced it by enableMonitoring"
	}
	if near := diag.Nearest(key, names...); near != "" {
		return "unknown field; did you mean " + near + "?"
	}
	return "unknown field; known are " + strings.Join(names, ", ")
}

// decodeList decodes an array. It refuses null entries.
func (c *checker) decodeList(n *jsontree.Node, into reflect.Value) {
	if n.Kind != jsontree.Array {
		c.reject(n, "", "must be an array")
		return
	}
	list := reflect.MakeSlice(into.Type(), len(n.Children), len(n.Children))
	c.forEach(n, func(i int, child *jsontree.Node) {
		if child.Kind == jsontree.Null {
			c.reject(child, "", "an entry must not be null")
		}
		c.decode(child, list.Index(i))
	})
	into.Set(list)
}

// forEach calls do for the entries of an array, with the path of each.
func (c *checker) forEach(array *jsontree.Node, do func(i int, entry *jsontree.Node)) {
	for i, entry := range array.Children {
		if c.isFull() {
			return
		}
		c.within(i, func() { do(i, entry) })
	}
}

// decodeString returns a string. Numbers and booleans count as their literals, as in the CDI
// libraries.
func (c *checker) decodeString(n *jsontree.Node) string {
	switch {
	case n.Kind == jsontree.Array || n.Kind == jsontree.Object:
		rule := "must be a string"
		if c.isVariable() {
			rule = `must be a string NAME=VALUE, such as "FOO=bar"`
		}
		c.reject(n, "", rule)
		return ""
	case strings.IndexByte(n.Text, 0) >= 0:
		c.reject(n, "", "must not contain a NUL")
		return ""
	case c.isVariable() && strings.IndexByte(n.Text, '=') <= 0:
		c.reject(n, "", "must be NAME=VALUE")
	}
	return strings.Clone(n.Text) // the spec does not hold the whole text in memory
}

// isVariable reports whether the current path is an entry of a list of variables.
func (c *checker) isVariable() bool {
	last := len(c.path) - 1
	return last > 0 && c.path[last-1] == "env"
}

// integerRules are the fields with an integer.
var integerRules = map[string]struct {
	low, high int64
	rule      string
}{
	"major":          {0, math.MaxInt64, "must be a device number, 0 or more"},
	"minor":          {0, math.MaxInt64, "must be a device number, 0 or more"},
	"fileMode":       {0, math.MaxUint32, "must be permission bits, at most 4095 (octal 7777)"},
	"uid":            {0, math.MaxUint32, "must be a user ID, 0 to 4294967295"},
	"gid":            {0, math.MaxUint32, "must be a group ID, 0 to 4294967295"},
	"additionalGids": {0, math.MaxUint32, "must be a group ID, 0 to 4294967295"},
	"timeout":        {1, math.MaxInt32, "must be a number of seconds greater than 0, at most 2147483647"},
}

// decodeInteger returns an integer in the range for its field.
func (c *checker) decodeInteger(n *jsontree.Node) int64 {
	field, ok := c.path[len(c.path)-1].(string)
	if !ok { // in a list
		field = c.path[len(c.path)-2].(string)
	}
	want := integerRules[field]
	if n.Kind == jsontree.Number {
		if v, ok := schema.ParseInteger(n.Text); ok && want.low <= v && v <= want.high {
			return v
		}
	}
	rule := want.rule
	if _, ok := schema.ParseInteger(n.Text); ok && n.Kind == jsontree.String {
		rule += ", without quotes"
	}
	c.reject(n, "", rule)
	return want.low
}

// decodeBool returns a boolean. The words of YAML 1.1 count, as in the CDI libraries.
func (c *checker) decodeBool(n *jsontree.Node) bool {
	if n.Kind == jsontree.Bool {
		return strings.EqualFold(n.Text, "true")
	}
	if n.Kind == jsontree.String {
		switch n.Text {
		case "y", "Y", "yes", "Yes", "YES", "on", "On", "ON":
			return true
		case "n", "N", "no", "No", "NO", "off", "Off", "OFF":
			return false
		}
	}
	c.reject(n, "", "must be true or false")
	return false
}
