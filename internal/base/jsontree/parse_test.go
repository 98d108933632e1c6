// SPDX-License-Identifier: Apache-2.0

package jsontree_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/jackfield/jackfield/internal/base/jsontree"
)

func TestParseReturnsPositions(t *testing.T) {
	text := "{\n  \"é\": [1.5, \"a\\u00e9\\ud83d\\ude00\\n\"],\n  \"b\": {\"c\": true}, \"b\": null\n}"
	root, err := jsontree.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if root.Kind != jsontree.Object || root.Line != 1 || root.Column != 1 || root.Start != 0 || root.End != len(text) || len(root.Children) != 3 {
		t.Fatalf("root: %+v", root)
	}
	list := root.Member("é")
	if list.Kind != jsontree.Array || list.Line != 2 || list.Column != 8 || list.KeyLine != 2 || list.KeyColumn != 3 {
		t.Errorf("list: %+v", list)
	}
	if n := list.Children[0]; n.Kind != jsontree.Number || n.Text != "1.5" || text[n.Start:n.End] != "1.5" {
		t.Errorf("number: %+v", n)
	}
	if n := list.Children[1]; n.Kind != jsontree.String || n.Text != "aé😀\n" || n.Column != 14 {
		t.Errorf("string: %+v", n)
	}
	if n := root.Children[1].Member("c"); n.Kind != jsontree.Bool || n.Text != "true" || n.Line != 3 {
		t.Errorf("boolean: %+v", n)
	}
	if n := root.Member("b"); n.Kind != jsontree.Null || n.KeyLine != 3 || n.KeyColumn != 21 {
		t.Errorf("of two members the last one counts: %+v", n)
	}
	if list.Member("x") != nil || root.Member("x") != nil {
		t.Error("found a missing member")
	}
}

func TestParseReportsFaults(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "1:1: found the end of the text: the text is empty; a JSON value is required",
		" \n ":                     "2:2: found the end of the text: the text is empty; a JSON value is required",
		"{\"a\": 1,\n}":            "2:1: found '}': a value is required after the comma: remove the comma before it",
		"[1,]":                     "1:4: found ']': a value is required after the comma: remove the comma before it",
		"{\"a\" 1}":                "1:6: found '1': a colon is required after the key \"a\"",
		"{a: 1}":                   "1:2: found 'a': a key in double quotation marks is required",
		"{“a”: 1}":                 "1:2: found '“': a key in double quotation marks is required: replace the typographic quotation marks by straight ones (\")",
		"{'a': 1}":                 "1:2: found '\\'': a key in double quotation marks is required: use double quotation marks (\")",
		"{\"é\": 1 \"b\": 2}":      "1:9: found '\"': a comma or } is required",
		"[1 2]":                    "1:4: found '2': a comma or ] is required",
		"1 2":                      "1:3: found '2': nothing may follow the end of the JSON value",
		"[":                        "1:2: found the end of the text: a value is missing: the text is cut short",
		"tru":                      "1:1: found 't': a JSON value is required",
		"01":                       "1:2: found '1': nothing may follow the end of the JSON value",
		"-":                        "1:2: found the end of the text: a digit is required: the text is cut short",
		"1.":                       "1:3: found the end of the text: a digit is required: the text is cut short",
		"1e+":                      "1:4: found the end of the text: a digit is required: the text is cut short",
		"\"a":                      "1:3: found the end of the text: a string is not closed: the text is cut short",
		"\"a\tb\"":                 "1:3: found '\\t': a control character in a string must be escaped",
		"\"\\x\"":                  "1:2: found '\\\\': not an escape sequence of JSON",
		"\"\\ud800\"":              "1:2: found '\\\\': not an escape sequence of JSON",
		"\"\\u00\"":                "1:2: found '\\\\': not an escape sequence of JSON",
		"\"\xff\"":                 "1:2: found the byte 0xff: not valid UTF-8: save the file as UTF-8",
		strings.Repeat("[", 1000):  "1:66: found '[': must not be nested deeper than 64 levels",
		"[1,\n\n  nul]":            "3:3: found 'n': a JSON value is required",
		"\"a\nb\"":                 "1:3: found '\\n': a control character in a string must be escaped: the closing quotation mark is probably missing",
		"\ufeff{}":                 "1:1: found a byte order mark: a JSON value is required: save the file as UTF-8 without a byte order mark",
		"{ // a\n}":                "1:3: found '/': a key in double quotation marks is required: JSON has no comments",
		"{«a»: 1}":                 "1:2: found '«': a key in double quotation marks is required: replace the typographic quotation marks by straight ones (\")",
		"{\"a\": \"b\" , \"c\":}":  "1:17: found '}': a JSON value is required",
		"{\"a\": 1, \"b\": 2, 3 }": "1:18: found '3': a key in double quotation marks is required",
	} {
		_, err := jsontree.Parse(text)
		if err == nil {
			t.Errorf("%q: no fault", text)
		} else if err.Error() != want {
			t.Errorf("%q:\n got %s\nwant %s", text, err, want)
		}
	}
}

// FuzzParse compares Parse with encoding/json, which accepts the same texts but for invalid
// UTF-8, lone surrogates and deep nesting.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{`{"a":[1,-2.5e3,"x\u00e9",true,null]}`, "", "[", `"\ud800"`, "\"\xff\"", `{"a":1,"a":2}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		root, fault := jsontree.Parse(text)
		if fault != nil {
			if fault.Line < 1 || fault.Column < 1 || fault.Rule == "" || fault.Found == "" {
				t.Errorf("%q: %+v", text, fault)
			}
			loose := !utf8.ValidString(text) || strings.Contains(text, `\u`) || strings.Count(text, "[")+strings.Count(text, "{") > 64
			if !loose && json.Valid([]byte(text)) {
				t.Errorf("%q is JSON: %v", text, fault)
			}
			return
		}
		if !json.Valid([]byte(text)) {
			t.Fatalf("%q is not JSON", text)
		}
		var want, got any
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			return // a number out of range
		}
		got = plainValue(t, root, text)
		w, _ := json.Marshal(want)
		if g, _ := json.Marshal(got); !bytes.Equal(w, g) {
			t.Errorf("%q:\n got %s\nwant %s", text, g, w)
		}
	})
}

// plainValue returns the value that encoding/json makes of the node's text.
func plainValue(t *testing.T, n *jsontree.Node, text string) any {
	switch n.Kind {
	case jsontree.Object:
		m := make(map[string]any)
		for _, child := range n.Children {
			m[child.Key] = plainValue(t, child, text)
		}
		return m
	case jsontree.Array:
		list := make([]any, 0)
		for _, child := range n.Children {
			list = append(list, plainValue(t, child, text))
		}
		return list
	case jsontree.String:
		return n.Text
	}
	var value any
	if err := json.Unmarshal([]byte(text[n.Start:n.End]), &value); err != nil {
		t.Fatal(err)
	}
	return value
}
