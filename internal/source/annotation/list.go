// SPDX-License-Identifier: Apache-2.0

package annotation

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/jsontree"
	"github.com/jackfield/jackfield/internal/base/schema"
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

// parseList parses the value as a list in JSON or YAML, and returns its items.
func parseList(key, value string) ([]*jsontree.Node, error) {
	list, notJSON := jsontree.Parse(value) // JSON allows tabs for indentation, YAML does not
	if notJSON != nil {
		var faults diag.List
		if list, faults = schema.ParsePlain(value); len(faults) > 0 {
			return nil, &Error{Key: key, Rule: diag.Quote(value) + " is not a comma list, and not plain YAML or JSON: " +
				faults[0].Error()}
		}
	}
	switch {
	case list == nil:
		return nil, &Error{Key: key, Rule: "the value has only a comment, no list"}
	case list.Kind == jsontree.Object:
		return nil, &Error{Key: key, Rule: diag.Quote(value) + " is an object: must be a list: [{...}]"}
	case list.Kind != jsontree.Array:
		return nil, &Error{Key: key, Rule: diag.Quote(value) +
			" is not a list; write names with commas between them, without quotes, or a list in YAML or JSON"}
	case len(list.Children) > MaxItems:
		return nil, tooManyItems(key, len(list.Children))
	}
	return list.Children, nil
}

// readItem reads one entry of a list: a string, or an object with one of the given fields and
// optionally "optional".
func readItem(key string, position int, node *jsontree.Node, fields []string) (item, error) {
	it := item{Request: Request{Key: key, Position: position, Item: node.Text}}
	switch node.Kind {
	case jsontree.Array:
		return it, it.newError("not a string and not an object with " + joinOr(fields))
	case jsontree.Object:
	default:
		if rule := checkText(node); rule != "" {
			return it, it.newError(rule)
		}
		return it, nil
	}
	d := schema.NewDecoder("")
	members := []schema.Member{schema.Key(fieldOptional, d.Boolean(&it.Optional))}
	for _, field := range slices.Backward(fields) {
		members = slices.Insert(members, 0, schema.Key(field, func(_ string, value *jsontree.Node) {
			if it.field != "" {
				d.AddFault("", value, "", "an object has one of "+joinOr(fields)+", not both")
				return
			}
			it.field, it.Item = field, value.Text
			if rule := checkText(value); rule != "" {
				d.AddFault("", value, "", rule)
			}
		}))
	}
	if d.ReadObject("", node, members...) && it.field == "" {
		return it, it.newError("an object needs " + joinOr(fields))
	}
	return it, it.firstFault(d)
}

// firstFault returns the first fault of an object, or nil.
func (r *Request) firstFault(d *schema.Decoder) error {
	if len(d.Faults) == 0 {
		return nil
	}
	return r.newError(d.Faults[0].Message())
}

// checkText returns the rule that the text of an item breaks, or "". The text is used as written, regardless of YAML's
// type for it, because a network can be called 1e3.
func checkText(node *jsontree.Node) string {
	switch {
	case node.Kind == jsontree.Array || node.Kind == jsontree.Object:
		return "not a string"
	case node.Kind == jsontree.Null || strings.Trim(node.Text, asciiSpace) == "":
		return "an item is empty"
	}
	return ""
}

func joinOr(fields []string) string {
	return `"` + strings.Join(fields, `" or "`) + `"`
}

// newError returns the error for an item that breaks the rule.
func (r Request) newError(rule string) error {
	return &Error{Key: r.Key, Position: r.Position, Item: r.Item, Rule: rule}
}
