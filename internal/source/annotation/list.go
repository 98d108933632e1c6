// SPDX-License-Identifier: Apache-2.0

package annotation

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/jackfield/jackfield/internal/base/diag"
)

const (
	keywordAuto = "auto"
	keywordNone = "none"

	fieldOptional = "optional"

	asciiSpace = " \t\r\n"
)

// item is one entry of an annotation's list, before its text is parsed.
type item struct {
	Request
	// field is the object field with the text; "" for a plain string.
	field string
}

// checkValue checks the limits of every value, and returns the trimmed value.
func checkValue(key, value string) (string, error) {
	if len(value) > MaxValueBytes {
		return "", &Error{Key: key, Rule: fmt.Sprintf("the value has %d bytes; at most %d are read: remove "+
			"comments and repeated items, or request all devices of a kind as "+
			"vendor.com/class=all", len(value), MaxValueBytes)}
	}
	if !utf8.ValidString(value) {
		return "", &Error{Key: key, Rule: "the value is not UTF-8"}
	}
	return strings.Trim(value, asciiSpace), nil
}

// splitItems splits a checked value into items. A value that begins with one of YAML's special
// characters, which no name does, is YAML or JSON. Any other value is a comma-separated list. An
// object has one of the given fields.
func splitItems(key, value string, fields ...string) ([]item, error) {
	if !strings.ContainsRune("[{-#\"'&*!%?|>", rune(value[0])) {
		return splitCommas(key, value)
	}
	list, err := parseList(key, value)
	if err != nil {
		return nil, err
	}
	items := make([]item, 0, len(list))
	for i, node := range list {
		it, err := readItem(key, i+1, node, fields)
		if err != nil {
			return nil, err
		}
		items = append(items, it)
	}
	return items, nil
}

func splitCommas(key, value string) ([]item, error) {
	if n := strings.Count(value, ",") + 1; n > MaxItems {
		return nil, tooManyItems(key, n)
	}
	var items []item
	for text := range strings.SplitSeq(value, ",") {
		text = strings.Trim(text, asciiSpace)
		it := item{Request: Request{Key: key, Item: text, Position: len(items) + 1}}
		switch {
		case text == "":
			return nil, it.newError("an item is empty; remove the extra comma")
		case strings.ContainsAny(text, asciiSpace):
			return nil, it.newError("an item has no space; put a comma between items, or write a list in brackets " +
				"or with dashes")
		}
		items = append(items, it)
	}
	return items, nil
}

func tooManyItems(key string, n int) error {
	return &Error{Key: key, Rule: fmt.Sprintf("the list has %d items; at most %d are read: request all devices of "+
		"a kind as vendor.com/class=all, or declare one device with the edits of several", n, MaxItems)}
}

// parseList parses the value as one YAML document with a list, and returns its items.
func parseList(key, value string) ([]*yaml.Node, error) {
	data := []byte(value)
	// JSON allows tabs for indentation, YAML does not.
	if json.Valid(data) {
		var compact bytes.Buffer
		if err := json.Compact(&compact, data); err == nil {
			data = compact.Bytes()
		}
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document yaml.Node
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return nil, &Error{Key: key, Rule: "the value has only a comment, no list"}
	} else if err != nil {
		return nil, &Error{Key: key, Rule: diag.Quote(value) + " is not a comma list, and not YAML or JSON: " +
			diag.Quote(strings.TrimPrefix(err.Error(), "yaml: "))}
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, &Error{Key: key, Rule: "more than one YAML document"}
	}
	list := document.Content[0]
	switch {
	case list.Kind == yaml.MappingNode:
		return nil, &Error{Key: key, Rule: diag.Quote(value) + " is an object: must be a list: [{...}]"}
	case list.Kind != yaml.SequenceNode:
		return nil, &Error{Key: key, Rule: diag.Quote(value) +
			" is not a list; write names with commas between them, without quotes, or a list in YAML or JSON"}
	case isMarked(list):
		return nil, &Error{Key: key, Rule: ruleNoAnchors}
	case len(list.Content) > MaxItems:
		return nil, tooManyItems(key, len(list.Content))
	}
	return list.Content, nil
}

const ruleNoAnchors = "YAML anchors, aliases and tags are not supported"

// isMarked reports whether a node has an anchor or a tag.
func isMarked(node *yaml.Node) bool { return node.Anchor != "" || node.Style&yaml.TaggedStyle != 0 }

// readItem reads one entry of a YAML list: a string, or an object with one of the given fields and
// optionally "optional".
func readItem(key string, position int, node *yaml.Node, fields []string) (item, error) {
	it := item{Request: Request{Key: key, Position: position, Item: node.Value}}
	if node.Kind == yaml.ScalarNode {
		return it, it.checkText(node)
	}
	if node.Kind != yaml.MappingNode || isMarked(node) {
		return it, it.newError("not a string and not an object with " + joinOr(fields))
	}
	_, err := it.readMembers(node, slices.Concat(fields, []string{fieldOptional}),
		func(key string, value *yaml.Node) error {
			switch {
			case key == fieldOptional && (value.Kind != yaml.ScalarNode || value.Tag != "!!bool" || isMarked(value)):
				it.Item = value.Value
				return it.newError(`"optional" is true or false`)
			case key == fieldOptional:
				it.Optional = strings.EqualFold(value.Value, "true")
				return nil
			case it.field != "":
				return it.newError("an object has one of " + joinOr(fields) + ", not both")
			}
			it.field, it.Item = key, value.Value
			return it.checkText(value)
		})
	if err == nil && it.field == "" {
		err = it.newError("an object needs " + joinOr(fields))
	}
	return it, err
}

// readMembers calls read for each member of an object, and returns the keys that it has. It refuses
// other keys than the given ones, and a key that occurs twice.
func (r *Request) readMembers(object *yaml.Node, keys []string,
	read func(key string, value *yaml.Node) error) (map[string]bool, error) {
	seen := make(map[string]bool, len(keys))
	for i := 0; i+1 < len(object.Content); i += 2 {
		key, value := object.Content[i], object.Content[i+1]
		switch {
		case key.Kind != yaml.ScalarNode || key.Anchor != "":
			return nil, r.newError("an object's key is not a string")
		case !slices.Contains(keys, key.Value):
			return nil, r.newError("unknown key " + diag.Quote(key.Value) + "; the keys are " + strings.Join(keys,
				", "))
		case seen[key.Value]:
			return nil, r.newError("key " + diag.Quote(key.Value) + " occurs twice")
		}
		seen[key.Value] = true
		if err := read(key.Value, value); err != nil {
			return nil, err
		}
	}
	return seen, nil
}

// checkText checks the text node of an item. The text is used as written, regardless of YAML's type
// for it, because a network can be called 1e3.
func (r *Request) checkText(node *yaml.Node) error {
	switch {
	case node.Kind != yaml.ScalarNode:
		return r.newError("not a string")
	case isMarked(node):
		return r.newError(ruleNoAnchors)
	case node.Tag == "!!null" || strings.Trim(node.Value, asciiSpace) == "":
		return r.newError("an item is empty")
	}
	return nil
}

func joinOr(fields []string) string {
	return `"` + strings.Join(fields, `" or "`) + `"`
}

// newError returns the error for an item that breaks the rule.
func (r Request) newError(rule string) error {
	return &Error{Key: r.Key, Position: r.Position, Item: r.Item, Rule: rule}
}
