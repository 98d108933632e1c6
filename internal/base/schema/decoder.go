// SPDX-License-Identifier: Apache-2.0

package schema

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/jsontree"
)

// Decoder decodes the tree of a document. It collects all faults, so that a user can correct them in one pass.
type Decoder struct {
	File   string // path of the document, for the faults
	Faults diag.List
	Fields map[string]*jsontree.Node // values in the document
}

// NewDecoder returns a decoder for a document.
func NewDecoder(file string) *Decoder {
	return &Decoder{File: file, Fields: make(map[string]*jsontree.Node)}
}

// Reader decodes a node into its destination.
type Reader func(field string, node *jsontree.Node)

// Member is one permitted key of an object.
type Member struct {
	key  string
	read Reader
}

// Key returns the member with a key, whose value read decodes.
func Key(key string, read Reader) Member { return Member{key, read} }

// AddFault adds a fault of the value of a field.
func (d *Decoder) AddFault(field string, node *jsontree.Node, found, rule string) {
	d.Faults = append(d.Faults, &diag.Diagnostic{
		File: d.File, Line: node.Line, Column: node.Column, Field: field, Found: found, Rule: rule,
	})
}

// AddKeyFault adds a fault of the key of a node.
func (d *Decoder) AddKeyFault(field string, node *jsontree.Node, found, rule string) {
	d.AddFault(field, &jsontree.Node{Line: node.KeyLine, Column: node.KeyColumn}, found, rule)
}

// NodeOf returns the node of a field, or other if the document does not have the field.
func (d *Decoder) NodeOf(field string, other *jsontree.Node) *jsontree.Node {
	return cmp.Or(d.Fields[field], other)
}

// ReadObject decodes an object with the given members, all optional. It returns false after a
// fault.
func (d *Decoder) ReadObject(field string, node *jsontree.Node, members ...Member) bool {
	before := len(d.Faults)
	d.readMembers(field, node, func(at string, value *jsontree.Node) {
		i := slices.IndexFunc(members, func(m Member) bool { return m.key == value.Key })
		if i < 0 {
			d.AddKeyFault(field, value, "", diag.UnknownKey(value.Key, keysOf(members)...))
			return
		}
		d.Fields[at] = value
		members[i].read(at, value)
	})
	return len(d.Faults) == before
}

// Section is the reader of an object with the given members.
func (d *Decoder) Section(members ...Member) Reader {
	return func(field string, node *jsontree.Node) { d.ReadObject(field, node, members...) }
}

// keysOf returns the keys of members.
func keysOf(members []Member) []string {
	keys := make([]string, len(members))
	for i, m := range members {
		keys[i] = m.key
	}
	return keys
}

// Map reads an object with arbitrary keys. rule returns the reason why a key is invalid, or "". read decodes a value,
// whose node has the key; it returns false for an invalid one.
func Map[T any](d *Decoder, into *map[string]T, rule func(string) string,
	read func(at string, value *jsontree.Node) (T, bool)) Reader {
	return func(field string, node *jsontree.Node) {
		d.readMembers(field, node, func(at string, value *jsontree.Node) {
			if broken := rule(value.Key); broken != "" {
				d.AddKeyFault(field, value, diag.Quote(value.Key), broken)
				return
			}
			d.Fields[at] = value
			if *into == nil {
				*into = make(map[string]T)
			}
			if v, ok := read(at, value); ok {
				(*into)[value.Key] = v
			}
		})
	}
}

// TextMap reads an object of strings. The rules return the reason why a key or value is invalid, or "".
func (d *Decoder) TextMap(into *map[string]string, keyRule, valueRule func(string) string) Reader {
	return Map(d, into, keyRule, func(at string, value *jsontree.Node) (string, bool) {
		return d.ReadText(at, value, valueRule)
	})
}

// readMembers calls read for each member of an object. It rejects a key that occurs twice.
func (d *Decoder) readMembers(field string, node *jsontree.Node, read func(at string, value *jsontree.Node)) {
	if node.Kind != jsontree.Object {
		d.AddFault(field, node, Describe(node), "must be an object")
		return
	}
	lines := make(map[string]int, len(node.Children))
	for _, value := range node.Children {
		if first, twice := lines[value.Key]; twice {
			d.AddKeyFault(jsontree.JoinPath(field, diag.Excerpt(value.Key, diag.MaxQuoted)), value, "the key a second time",
				"it is already in line "+strconv.Itoa(first))
			continue
		}
		lines[value.Key] = value.KeyLine
		read(jsontree.JoinPath(field, value.Key), value)
	}
}

// Text reads a string. rule returns the reason why the string is invalid, or "".
func (d *Decoder) Text(into *string, rule func(string) string) Reader {
	return func(field string, node *jsontree.Node) {
		if s, ok := d.ReadText(field, node, rule); ok {
			*into = s
		}
	}
}

// ReadText decodes a string, like [Decoder.Text]. It returns false for an invalid one.
func (d *Decoder) ReadText(field string, node *jsontree.Node, rule func(string) string) (string, bool) {
	if node.Kind != jsontree.String {
		expected := "must be a string"
		if node.Kind != jsontree.Null && node.Kind < jsontree.String {
			expected += "; put it in quotes"
		}
		d.AddFault(field, node, Describe(node), expected)
		return "", false
	}
	if broken := rule(node.Text); broken != "" {
		d.AddFault(field, node, Describe(node), broken)
		return "", false
	}
	return node.Text, true
}

// Boolean reads true or false. The other words of YAML 1.1 (yes, on) are strings here, and therefore invalid.
func (d *Decoder) Boolean(into *bool) Reader {
	return func(field string, node *jsontree.Node) {
		if node.Kind != jsontree.Bool {
			d.AddFault(field, node, Describe(node), "must be true or false")
			return
		}
		*into = strings.EqualFold(node.Text, "true")
	}
}

// Number reads a whole number. hint is appended to the rule for an invalid value.
func (d *Decoder) Number(into *int, least, most int, hint string) Reader {
	return func(field string, node *jsontree.Node) {
		n, err := strconv.Atoi(node.Text)
		if node.Kind != jsontree.Number || err != nil || n < least || n > most {
			d.AddFault(field, node, Describe(node),
				fmt.Sprintf("must be a whole number from %d to %d%s", least, most, hint))
			return
		}
		*into = n
	}
}

// ReadList calls read for each element of a list. It rejects an empty list, which could mean
// nothing or everything.
func (d *Decoder) ReadList(field string, node *jsontree.Node, read Reader) {
	switch {
	case node.Kind != jsontree.Array:
		d.AddFault(field, node, Describe(node), "must be a list")
		return
	case len(node.Children) == 0:
		d.AddFault(field, node, "an empty list", "give at least one, or leave the key out")
		return
	}
	for i, element := range node.Children {
		at := jsontree.JoinPath(field, i)
		d.Fields[at] = element
		read(at, element)
	}
}

// Items reads a list. read decodes one item of it.
func Items[T any](d *Decoder, into *[]T, read func(at string, element *jsontree.Node, item *T)) Reader {
	return func(field string, node *jsontree.Node) {
		d.ReadList(field, node, func(at string, element *jsontree.Node) {
			var item T
			read(at, element, &item)
			*into = append(*into, item)
		})
	}
}

// OrEmpty accepts an empty list, if its meaning is clear.
func OrEmpty(read Reader) Reader {
	return func(field string, node *jsontree.Node) {
		if node.Kind != jsontree.Array || len(node.Children) > 0 {
			read(field, node)
		}
	}
}

// Texts reads a list of different strings. For rule see [Decoder.Text].
func (d *Decoder) Texts(into *[]string, rule func(string) string) Reader {
	return func(field string, node *jsontree.Node) {
		var all []string
		first := make(map[string]int)
		d.ReadList(field, node, func(at string, element *jsontree.Node) {
			s, ok := d.ReadText(at, element, rule)
			if !ok {
				return
			}
			if line, twice := first[s]; twice {
				d.AddFault(at, element, Describe(element), "it is already in the list, in line "+strconv.Itoa(line))
				return
			}
			first[s] = element.Line
			all = append(all, s)
		})
		*into = all
	}
}

// TextsOrNone is like Texts, but also accepts an empty list.
func (d *Decoder) TextsOrNone(into *[]string, rule func(string) string) Reader {
	read := d.Texts(into, rule)
	return func(field string, node *jsontree.Node) {
		if node.Kind == jsontree.Array && len(node.Children) == 0 {
			*into = nil
			return
		}
		read(field, node)
	}
}

// Enum reads one of a set of words.
func Enum[T ~string](d *Decoder, into *T, words ...T) Reader {
	return func(field string, node *jsontree.Node) {
		names := make([]string, len(words))
		for i, w := range words {
			names[i] = string(w)
		}
		s, ok := d.ReadText(field, node, func(s string) string {
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

// Describe describes a value for a message.
func Describe(node *jsontree.Node) string {
	switch node.Kind {
	case jsontree.Object:
		return "an object"
	case jsontree.Array:
		return "a list"
	case jsontree.Null:
		return "nothing"
	case jsontree.String:
		return diag.Quote(node.Text)
	}
	return diag.Excerpt(node.Text, diag.MaxQuoted) + ", which YAML reads as " + node.Kind.String()
}
