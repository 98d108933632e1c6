// SPDX-License-Identifier: Apache-2.0

package schema_test

import (
	"strings"
	"testing"

	"github.com/jackfield/jackfield/internal/base/schema"
)

func TestPlainDocumentHasNoObscureYAML(t *testing.T) {
	for text, want := range map[string]string{
		"a: [{[b]: c}]":       "1:6: a[0]: found a list: a key must be a string; put it in quotes if it is one",
		"a: {7: c}":           "1:5: a: found 7, which YAML reads as a number: a key must be a string; put it in quotes if it is one",
		"&k a: b":             `1:1: found the anchor "k": YAML anchors are not allowed; repeat the value`,
		"a: &a b\n*a : c":     `1:4: found the anchor "a": YAML anchors are not allowed; repeat the value; 2:1: found the alias "a": YAML aliases are not allowed; repeat the value`,
		"a: {<<: {b: c}}":     "1:5: a: found the merge key <<: YAML merge keys are not allowed; repeat the keys",
		"a: !!binary YQ==":    `1:4: found the tag "!!binary": YAML tags are not allowed`,
		"a\n---\nb":           "2:1: a second YAML document; only one is allowed",
		"a: b\n---\n":         "",
		"- 'x'\n- true\n- ~":  "",
		"":                    "",
		"# only a comment\n":  "",
		"? a\n: b\n...\nc: d": "3: nothing may follow the end of the document: not YAML: did not find expected <document start>",
	} {
		root, faults := schema.ParsePlain(text)
		if got := faults.Error(); got != want {
			t.Errorf("%q:\n got %s\nwant %s", text, got, want)
		}
		if strings.Contains(want, "not allowed; repeat the value") && root != nil {
			t.Errorf("%q: a tree without the values of the aliases", text)
		}
	}
}

func TestYAMLTreeHasAliasesAndMergedMembers(t *testing.T) {
	root, fault := schema.ParseYAML("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\nc: *a\n")
	if fault != nil {
		t.Fatal(fault)
	}
	if n := root.At("b", "x"); n.Text != "1" || n.Line != 1 {
		t.Errorf("%+v", n)
	}
	if n := root.At("b", "y"); n.Text != "3" || len(root.Member("b").Children) != 2 {
		t.Errorf("%+v", n)
	}
	if n := root.At("c", "y"); n.Text != "2" {
		t.Errorf("%+v", n)
	}
}

func TestDateIsNoString(t *testing.T) {
	root, _ := schema.ParsePlain("a: 2001-01-01")
	d, s := schema.NewDecoder("f"), ""
	d.ReadObject("", root, schema.Key("a", d.Text(&s, func(string) string { return "" })))
	const want = "f:1:4: a: invalid value 2001-01-01, which YAML reads as a time: must be a string; put it in quotes"
	if got := d.Faults.Error(); got != want || s != "" {
		t.Errorf("%q, %s", s, got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("a: &a [*a]\nb: {<<: {c: d}}\n---\n")
	f.Fuzz(func(t *testing.T, text string) {
		if root, fault := schema.ParseYAML(text); root != nil && fault != nil {
			t.Errorf("a tree beside %v", fault)
		}
		root, faults := schema.ParsePlain(text)
		if len(faults) == 0 && root == nil && strings.Trim(text, " \n\t") != "" && text[0] != '#' {
			if other, fault := schema.ParseYAML(text); other != nil || fault != nil {
				t.Errorf("%v and %v of a text without faults", other, fault)
			}
		}
	})
}
