// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// decoder walks the tree of a YAML document. It collects faults rather than
// stopping at the first, so that a file is put right in one go.
type decoder struct {
	file      string
	faults    []*Error
	positions map[string]position
}

// reader reads a node into its destination.
type reader func(field string, node *yaml.Node)

// member is one key that an object may have.
type member struct {
	key  string
	read reader
}

func (d *decoder) fault(field string, node *yaml.Node, found, rule string) {
	d.faults = append(d.faults, &Error{
		File: d.file, Line: node.Line, Column: node.Column, Field: field, Found: found, Rule: rule,
	})
}

func (d *decoder) mark(field string, node *yaml.Node) {
	d.positions[field] = position{node.Line, node.Column}
}

// plain refuses what makes a YAML file mean something else than it shows:
// anchors, aliases (and with them documents that grow when read), merge keys
// and tags.
func (d *decoder) plain(node *yaml.Node) {
	switch {
	case node.Kind == yaml.AliasNode:
		d.fault("", node, "the alias "+quote(node.Value), "YAML aliases are not taken; write the value out")
	case node.Anchor != "":
		d.fault("", node, "the anchor "+quote(node.Anchor), "YAML anchors are not taken; write the value out")
	case node.Style&yaml.TaggedStyle != 0:
		d.fault("", node, "the tag "+quote(node.Tag), "YAML tags are not taken")
	}
	for _, child := range node.Content {
		d.plain(child)
	}
}

// object reads an object that has some of the given members.
func (d *decoder) object(field string, node *yaml.Node, members ...member) {
	d.pairs(field, node, func(key, value *yaml.Node) {
		for _, m := range members {
			if m.key == key.Value {
				d.mark(join2(field, m.key), value)
				m.read(join2(field, m.key), value)
				return
			}
		}
		keys := make([]string, len(members))
		for i, m := range members {
			keys[i] = m.key
		}
		d.fault(field, key, "the unknown key "+quote(key.Value),
			"the keys here are "+strings.Join(keys, ", ")+nearest(key.Value, keys))
	})
}

// pairs calls read for each pair of an object, and sees to it that keys are
// strings and there once.
func (d *decoder) pairs(field string, node *yaml.Node, read func(key, value *yaml.Node)) {
	if node.Kind != yaml.MappingNode {
		d.fault(field, node, found(node), "want an object")
		return
	}
	lines := make(map[string]int, len(node.Content)/2)
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		switch first, twice := lines[key.Value]; {
		case key.Kind == yaml.ScalarNode && key.Tag == "!!merge":
			d.fault(field, key, "the merge key <<", "YAML merge keys are not taken; write the keys out")
		case key.Kind != yaml.ScalarNode || key.Tag != "!!str":
			d.fault(field, key, found(key), "want a string as key; put it in quotes if it is one")
		case twice:
			d.fault(join2(field, shorten(key.Value)), key, "the key a second time", "it is in line "+strconv.Itoa(first)+" already")
		default:
			lines[key.Value] = key.Line
			read(key, value)
		}
	}
}

func join2(field, key string) string {
	if field == "" {
		return key
	}
	return field + "." + key
}

// text reads a string that keeps a rule. rule returns what the string breaks,
// or "".
func (d *decoder) text(into *string, rule func(string) string) reader {
	return func(field string, node *yaml.Node) {
		if s, ok := d.str(field, node, rule); ok {
			*into = s
		}
	}
}

func (d *decoder) str(field string, node *yaml.Node, rule func(string) string) (string, bool) {
	if node.Kind != yaml.ScalarNode || node.Tag != "!!str" {
		want := "want a string"
		if node.Kind == yaml.ScalarNode && node.Tag != "!!null" {
			want += "; put it in quotes"
		}
		d.fault(field, node, found(node), want)
		return "", false
	}
	if broken := rule(node.Value); broken != "" {
		d.fault(field, node, found(node), broken)
		return "", false
	}
	return node.Value, true
}

// truth reads true or false. YAML's older words for them (yes, on) are strings
// here, and so faults.
func (d *decoder) truth(into *bool) reader {
	return func(field string, node *yaml.Node) {
		var b bool
		if node.Kind != yaml.ScalarNode || node.Tag != "!!bool" || node.Decode(&b) != nil {
			d.fault(field, node, found(node), "want true or false")
			return
		}
		*into = b
	}
}

// list calls read for each element of a list. An empty list is refused: it
// cannot be told whether its author meant nothing or everything.
func (d *decoder) list(field string, node *yaml.Node, read reader) {
	switch {
	case node.Kind != yaml.SequenceNode:
		d.fault(field, node, found(node), "want a list")
		return
	case len(node.Content) == 0:
		d.fault(field, node, "an empty list", "give at least one, or leave the key out")
		return
	}
	for i, element := range node.Content {
		at := field + "[" + strconv.Itoa(i) + "]"
		d.mark(at, element)
		read(at, element)
	}
}

// texts reads a list of different strings that each keep a rule.
func (d *decoder) texts(into *[]string, rule func(string) string) reader {
	return func(field string, node *yaml.Node) {
		var all []string
		first := make(map[string]int)
		d.list(field, node, func(at string, element *yaml.Node) {
			s, ok := d.str(at, element, rule)
			if !ok {
				return
			}
			if line, twice := first[s]; twice {
				d.fault(at, element, found(element), "it is in the list already, in line "+strconv.Itoa(line))
				return
			}
			first[s] = element.Line
			all = append(all, s)
		})
		*into = all
	}
}

// enum reads one of a set of words.
func enum[T ~string](d *decoder, into *T, words ...T) reader {
	return func(field string, node *yaml.Node) {
		names := make([]string, len(words))
		for i, w := range words {
			names[i] = string(w)
		}
		s, ok := d.str(field, node, func(s string) string {
			for _, name := range names {
				if s == name {
					return ""
				}
			}
			return "want one of " + strings.Join(names, ", ") + nearest(s, names)
		})
		if ok {
			*into = T(s)
		}
	}
}
