// SPDX-License-Identifier: Apache-2.0

package annotation

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

const (
	keywordAuto = "auto"
	keywordNone = "none"

	fieldOptional = "optional"

	asciiSpace = " \t\r\n"
)

// item is one entry of an annotation's list, not yet understood.
type item struct {
	Request
	// field is the object field the text was found in, empty for a plain
	// string.
	field string
}

// checkValue applies what holds for every value, and returns it trimmed.
func checkValue(key, value string) (string, error) {
	if len(value) > MaxValueBytes {
		return "", &Error{Key: key, Rule: fmt.Sprintf("the value has %d bytes; at most %d are read", len(value), MaxValueBytes)}
	}
	if !utf8.ValidString(value) {
		return "", &Error{Key: key, Rule: "the value is not UTF-8"}
	}
	return strings.Trim(value, asciiSpace), nil
}

// split takes a checked value apart. A value that begins with one of YAML's
// own characters, as no name does, is YAML, of which JSON is a part; any other
// is a comma list. fields are the object fields of which an object item has
// one.
func split(key, value string, fields ...string) ([]item, error) {
	if !strings.ContainsRune("[{-#\"'&*!%?|>", rune(value[0])) {
		return splitCommas(key, value)
	}
	list, err := parseList(key, value)
	if err != nil {
		return nil, err
	}
	if len(list.Content) > MaxItems {
		return nil, tooMany(key, len(list.Content))
	}
	items := make([]item, 0, len(list.Content))
	for i, node := range list.Content {
		it, err := nodeItem(key, i+1, node, fields)
		if err != nil {
			return nil, err
		}
		items = append(items, it)
	}
	return items, nil
}

func splitCommas(key, value string) ([]item, error) {
	if n := strings.Count(value, ",") + 1; n > MaxItems {
		return nil, tooMany(key, n)
	}
	var items []item
	for text := range strings.SplitSeq(value, ",") {
		text = strings.Trim(text, asciiSpace)
		it := item{Request: Request{Key: key, Item: text, Position: len(items) + 1}}
		switch {
		case text == "":
			return nil, it.fail("an item is empty; take out the comma too many")
		case strings.ContainsAny(text, asciiSpace):
			return nil, it.fail("an item holds no space; put a comma between items, or write a list in brackets or with dashes")
		}
		items = append(items, it)
	}
	return items, nil
}

func tooMany(key string, n int) error {
	return &Error{Key: key, Rule: fmt.Sprintf("the list has %d items; at most %d are read", n, MaxItems)}
}

// parseList reads the value as one YAML document that is a list.
func parseList(key, value string) (*yaml.Node, error) {
	data := []byte(value)
	// YAML takes no tab for indentation, JSON does.
	if json.Valid(data) {
		var compact bytes.Buffer
		if err := json.Compact(&compact, data); err == nil {
			data = compact.Bytes()
		}
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document yaml.Node
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return nil, &Error{Key: key, Rule: "the value holds no list, only a comment"}
	} else if err != nil {
		return nil, &Error{Key: key, Rule: quote(value) + " is no comma list, and as YAML or JSON: " + quote(strings.TrimPrefix(err.Error(), "yaml: "))}
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, &Error{Key: key, Rule: "more than one YAML document"}
	}
	list := document.Content[0]
	switch {
	case list.Kind == yaml.MappingNode:
		return nil, &Error{Key: key, Rule: quote(value) + " is an object, and a list is wanted; write [{...}]"}
	case list.Kind != yaml.SequenceNode:
		return nil, &Error{Key: key, Rule: quote(value) + " is not a list; write names with commas between them, without quotes, or a list in YAML or JSON"}
	case list.Anchor != "" || list.Style&yaml.TaggedStyle != 0:
		return nil, &Error{Key: key, Rule: "YAML anchors, aliases and tags are not taken"}
	}
	return list, nil
}

// nodeItem reads one entry of a YAML list: a string, or an object with one of
// the given fields and optionally "optional".
func nodeItem(key string, position int, node *yaml.Node, fields []string) (item, error) {
	it := item{Request: Request{Key: key, Position: position, Item: node.Value}}
	if node.Kind == yaml.ScalarNode {
		if rule := scalarRule(node); rule != "" {
			return item{}, it.fail(rule)
		}
		return it, nil
	}
	if node.Kind != yaml.MappingNode || node.Anchor != "" || node.Style&yaml.TaggedStyle != 0 {
		return item{}, it.fail("not a string and not an object with " + orList(fields))
	}
	seenOptional := false
	for i := 0; i+1 < len(node.Content); i += 2 {
		name, value := node.Content[i], node.Content[i+1]
		switch {
		case name.Kind != yaml.ScalarNode || name.Anchor != "":
			return item{}, it.fail("an object's key is not a string")
		case name.Value == fieldOptional && !seenOptional:
			seenOptional = true
			optional, ok := boolean(value)
			if !ok {
				it.Item = value.Value
				return item{}, it.fail(`"optional" is true or false`)
			}
			it.Optional = optional
		case isField(name.Value, fields) && it.field == "":
			it.field, it.Item = name.Value, value.Value
			if rule := scalarRule(value); rule != "" {
				return item{}, it.fail(rule)
			}
		case name.Value == fieldOptional || name.Value == it.field:
			return item{}, it.fail("key " + quote(name.Value) + " is there twice")
		case isField(name.Value, fields):
			return item{}, it.fail("an object has one of " + orList(fields) + ", not both")
		default:
			return item{}, it.fail("unknown key " + quote(name.Value) + `; the keys are "` + strings.Join(fields, `", "`) + `" and "optional"`)
		}
	}
	if it.field == "" {
		return item{}, it.fail("an object needs " + orList(fields))
	}
	return it, nil
}

// scalarRule returns the rule that a node breaks as an item's text, or "".
// The text is taken as written, whatever type YAML would see in it: a network
// may be called 1e3.
func scalarRule(node *yaml.Node) string {
	switch {
	case node.Kind != yaml.ScalarNode:
		return "not a string"
	case node.Anchor != "" || node.Style&yaml.TaggedStyle != 0:
		return "YAML anchors, aliases and tags are not taken"
	case node.Tag == "!!null" || strings.Trim(node.Value, asciiSpace) == "":
		return "an item is empty"
	}
	return ""
}

func boolean(node *yaml.Node) (value, ok bool) {
	if node.Kind != yaml.ScalarNode || node.Tag != "!!bool" || node.Anchor != "" {
		return false, false
	}
	return strings.EqualFold(node.Value, "true"), true
}

func isField(name string, fields []string) bool {
	for _, f := range fields {
		if name == f {
			return true
		}
	}
	return false
}

func orList(fields []string) string {
	return `"` + strings.Join(fields, `" or "`) + `"`
}

// fail returns the error that the item breaks the rule.
func (r Request) fail(rule string) error {
	return &Error{Key: r.Key, Position: r.Position, Item: r.Item, Rule: rule}
}
