// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/jackfield/jackfield/internal/base/diag"
)

// decoder walks the tree of a YAML document. It collects all faults, so that a user can correct
// them in one pass.
type decoder struct {
	file   string
	faults diag.List
	fields map[string]*yaml.Node // values in the file
}

// reader decodes a node into its destination.
type reader func(field string, node *yaml.Node)

// member is one permitted key of an object.
type member struct {
	key  string
	read reader
}

func (d *decoder) addFault(field string, node *yaml.Node, found, rule string) {
	d.faults = append(d.faults, &diag.Diagnostic{
		File: d.file, Line: node.Line, Column: node.Column, Field: field, Found: found, Rule: rule,
	})
}

// nodeOf returns the node of a field, or other if the file does not have the field.
func (d *decoder) nodeOf(field string, other *yaml.Node) *yaml.Node {
	return cmp.Or(d.fields[field], other)
}

// rejectAnchorsAndTags rejects YAML features that obscure the meaning of a file: anchors, aliases
// (and with them documents that grow when decoded) and tags.
func (d *decoder) rejectAnchorsAndTags(node *yaml.Node) {
	switch {
	case node.Kind == yaml.AliasNode:
		d.addFault("", node, "the alias "+diag.Quote(node.Value), "YAML aliases are not allowed; repeat the value")
	case node.Anchor != "":
		d.addFault("", node, "the anchor "+diag.Quote(node.Anchor), "YAML anchors are not allowed; repeat the value")
	case node.Style&yaml.TaggedStyle != 0:
		d.addFault("", node, "the tag "+diag.Quote(node.Tag), "YAML tags are not allowed")
	}
	for _, child := range node.Content {
		d.rejectAnchorsAndTags(child)
	}
}

// readObject decodes an object with the given members, all optional. It returns false after a
// fault.
func (d *decoder) readObject(field string, node *yaml.Node, members ...member) bool {
	before := len(d.faults)
	d.readPairs(field, node, func(key, value *yaml.Node) {
		i := slices.IndexFunc(members, func(m member) bool { return m.key == key.Value })
		if i < 0 {
			keys := keysOf(members)
			d.addFault(field, key, "", "unknown key "+diag.Quote(key.Value)+"; the keys here are "+
				strings.Join(keys, ", ")+diag.Suggest(key.Value, keys...))
			return
		}
		at := joinPath(field, key.Value)
		d.fields[at] = value
		members[i].read(at, value)
	})
	return len(d.faults) == before
}

func keysOf(members []member) []string {
	keys := make([]string, len(members))
	for i, m := range members {
		keys[i] = m.key
	}
	return keys
}

// readMap decodes an object with arbitrary keys. rule returns the reason why a key is invalid, or
// "". read decodes a value; it returns false for an invalid one.
func readMap[T any](d *decoder, into *map[string]T, rule func(string) string,
	read func(at string, key, value *yaml.Node) (T, bool)) reader {
	return func(field string, node *yaml.Node) {
		d.readPairs(field, node, func(key, value *yaml.Node) {
			if broken := rule(key.Value); broken != "" {
				d.addFault(field, key, describe(key), broken)
				return
			}
			at := joinPath(field, key.Value)
			d.fields[at] = value
			if *into == nil {
				*into = make(map[string]T)
			}
			if v, ok := read(at, key, value); ok {
				(*into)[key.Value] = v
			}
		})
	}
}

// readTextMap decodes an object of strings. The rules return the reason why a key or value is
// invalid, or "".
func (d *decoder) readTextMap(into *map[string]string, keyRule, valueRule func(string) string) reader {
	return readMap(d, into, keyRule, func(at string, _, value *yaml.Node) (string, bool) {
		return d.readString(at, value, valueRule)
	})
}

// readPairs calls read for each pair of an object. It rejects duplicates, and keys that are not
// strings.
func (d *decoder) readPairs(field string, node *yaml.Node, read func(key, value *yaml.Node)) {
	if node.Kind != yaml.MappingNode {
		d.addFault(field, node, describe(node), "must be an object")
		return
	}
	lines := make(map[string]int, len(node.Content)/2)
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		switch first, twice := lines[key.Value]; {
		case key.Kind == yaml.ScalarNode && key.Tag == "!!merge":
			d.addFault(field, key, "the merge key <<", "YAML merge keys are not allowed; repeat the keys")
		case key.Kind != yaml.ScalarNode || key.Tag != "!!str":
			d.addFault(field, key, describe(key), "a key must be a string; put it in quotes if it is one")
		case twice:
			d.addFault(joinPath(field, diag.Excerpt(key.Value, diag.MaxQuoted)), key, "the key a second time",
				"it is already in line "+strconv.Itoa(first))
		default:
			lines[key.Value] = key.Line
			read(key, value)
		}
	}
}

// joinPath returns the path of a key below a field.
func joinPath(field, key string) string {
	if field == "" {
		return key
	}
	return field + "." + key
}

// readText decodes a string. rule returns the reason why the string is invalid, or "".
func (d *decoder) readText(into *string, rule func(string) string) reader {
	return func(field string, node *yaml.Node) {
		if s, ok := d.readString(field, node, rule); ok {
			*into = s
		}
	}
}

func (d *decoder) readString(field string, node *yaml.Node, rule func(string) string) (string, bool) {
	if node.Kind != yaml.ScalarNode || node.Tag != "!!str" {
		expected := "must be a string"
		if node.Kind == yaml.ScalarNode && node.Tag != "!!null" {
			expected += "; put it in quotes"
		}
		d.addFault(field, node, describe(node), expected)
		return "", false
	}
	if broken := rule(node.Value); broken != "" {
		d.addFault(field, node, describe(node), broken)
		return "", false
	}
	return node.Value, true
}

// readBoolean decodes true or false. The other words of YAML 1.1 (yes, on) are strings here, and
// therefore invalid.
func (d *decoder) readBoolean(into *bool) reader {
	return func(field string, node *yaml.Node) {
		var b bool
		if node.Kind != yaml.ScalarNode || node.Tag != "!!bool" || node.Decode(&b) != nil {
			d.addFault(field, node, describe(node), "must be true or false")
			return
		}
		*into = b
	}
}

// readList calls read for each element of a list. It rejects an empty list, which could mean
// nothing or everything.
func (d *decoder) readList(field string, node *yaml.Node, read reader) {
	switch {
	case node.Kind != yaml.SequenceNode:
		d.addFault(field, node, describe(node), "must be a list")
		return
	case len(node.Content) == 0:
		d.addFault(field, node, "an empty list", "give at least one, or leave the key out")
		return
	}
	for i, element := range node.Content {
		at := field + "[" + strconv.Itoa(i) + "]"
		d.fields[at] = element
		read(at, element)
	}
}

// readItems decodes a list of objects. read decodes one of them.
func readItems[T any](d *decoder, into *[]T, read func(at string, element *yaml.Node, item *T)) reader {
	return func(field string, node *yaml.Node) {
		d.readList(field, node, func(at string, element *yaml.Node) {
			var item T
			read(at, element, &item)
			*into = append(*into, item)
		})
	}
}

// orEmpty accepts an empty list. For rules, dialects and vswitches its meaning is clear, and
// templates produce it.
func orEmpty(read reader) reader {
	return func(field string, node *yaml.Node) {
		if node.Kind != yaml.SequenceNode || len(node.Content) > 0 {
			read(field, node)
		}
	}
}

// readTexts decodes a list of different strings. For rule see readText.
func (d *decoder) readTexts(into *[]string, rule func(string) string) reader {
	return func(field string, node *yaml.Node) {
		var all []string
		first := make(map[string]int)
		d.readList(field, node, func(at string, element *yaml.Node) {
			s, ok := d.readString(at, element, rule)
			if !ok {
				return
			}
			if line, twice := first[s]; twice {
				d.addFault(at, element, describe(element), "it is already in the list, in line "+strconv.Itoa(line))
				return
			}
			first[s] = element.Line
			all = append(all, s)
		})
		*into = all
	}
}

// readTextsOrNone is readTexts for a list that can be empty.
func (d *decoder) readTextsOrNone(into *[]string, rule func(string) string) reader {
	read := d.readTexts(into, rule)
	return func(field string, node *yaml.Node) {
		if node.Kind == yaml.SequenceNode && len(node.Content) == 0 {
			*into = nil
			return
		}
		read(field, node)
	}
}

// readEnum decodes one of a set of words.
func readEnum[T ~string](d *decoder, into *T, words ...T) reader {
	return func(field string, node *yaml.Node) {
		names := make([]string, len(words))
		for i, w := range words {
			names[i] = string(w)
		}
		s, ok := d.readString(field, node, func(s string) string {
			if slices.Contains(names, s) {
				return ""
			}
			return "must be one of " + strings.Join(names, ", ") + diag.Suggest(s, names...)
		})
		if ok {
			*into = T(s)
		}
	}
}
