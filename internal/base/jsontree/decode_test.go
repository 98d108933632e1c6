// SPDX-License-Identifier: Apache-2.0

package jsontree_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/jackfield/jackfield/internal/base/jsontree"
)

// target has a variable of each kind.
type target struct {
	Text  string            `json:"text"`
	Flag  bool              `json:"flag"`
	Small int8              `json:"small"`
	Size  *uint32           `json:"size"`
	List  []string          `json:"list"`
	Map   map[string]*int64 `json:"map"`
	Inner struct {
		A string `json:"a,omitempty"`
	} `json:"inner"`
	Node    *jsontree.Node `json:"node"`
	Address netip.Addr     `json:"address"`
}

func TestDecodeStoresValues(t *testing.T) {
	text := `{"text":"\u0061","flag":true,"small":-128,"size":7,"list":["x"],"map":{"A":1,"a":null},"inner":{"a":"b","A":"c"},"node":[1],"address":"10.0.0.1","TEXT":1,"other":{"a":1,"a":2}}`
	root, fault := jsontree.Parse(text)
	if fault != nil {
		t.Fatal(fault)
	}
	var got target
	if fault := (jsontree.Decoder{}).Decode(root, &got); fault != nil {
		t.Fatal(fault)
	}
	size, one := uint32(7), int64(1)
	want := target{Text: "a", Flag: true, Small: -128, Size: &size, List: []string{"x"}, Map: map[string]*int64{"A": &one, "a": nil}, Node: root.At("node"), Address: netip.MustParseAddr("10.0.0.1")}
	want.Inner.A = "b"
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Error(diff)
	}
	got = target{Text: "stays"}
	root, _ = jsontree.Parse(`{"text":null}`)
	if fault := (jsontree.Decoder{}).Decode(root, &got); fault != nil || got.Text != "stays" {
		t.Errorf("%+v, %v", got, fault)
	}
}

func TestDecodeReportsFaults(t *testing.T) {
	for text, want := range map[string]string{
		`null`:                           "1:1: invalid value null: must be an object",
		`[]`:                             "1:1: found an array: must be an object",
		`{"text":1}`:                     "1:9: text: found a number: must be a string",
		`{"flag":"yes"}`:                 "1:9: flag: found a string: must be a boolean",
		`{"small":128}`:                  "1:10: small: invalid value 128: must be a whole number from -128 to 127",
		`{"small":1.0}`:                  "1:10: small: invalid value 1.0: must be a whole number from -128 to 127",
		`{"size":-1}`:                    "1:9: size: invalid value -1: must be a whole number from 0 to 4294967295",
		`{"size":"1"}`:                   "1:9: size: found a string: must be a whole number from 0 to 4294967295",
		`{"list":{}}`:                    "1:9: list: found an object: must be an array",
		"{\"list\":[\"x\",\nnull]}":      "2:1: list[1]: invalid value null: must be a string",
		`{"map":{"a":1,"a":2}}`:          `1:15: map: found "a": a key must occur only once`,
		`{"map":{"a":"1"}}`:              "1:13: map.a: found a string: must be a whole number from -9223372036854775808 to 9223372036854775807",
		`{"inner":{"a":"","\u0061":""}}`: `1:18: inner: found "a": a key must occur only once`,
		`{"address":7}`:                  "1:12: address: found a number: must be a string",
		`{"address":"x"}`:                `1:12: address: found "x": ParseAddr("x"): unable to parse IP`,
		`{"inner":{"A":""}}`:             `1:11: inner.A: must be spelled "a": some programs ignore case`,
	} {
		root, fault := jsontree.Parse(text)
		if fault != nil {
			t.Fatal(fault)
		}
		if fault := (jsontree.Decoder{RefuseOtherCase: true}).Decode(root, &target{}); fault == nil || fault.Error() != want {
			t.Errorf("%s:\n got %v\nwant %s", text, fault, want)
		}
	}
}

func TestAtReturnsNearestValue(t *testing.T) {
	root, _ := jsontree.Parse(`{"a":[{"b.c":1}]}`)
	for _, tc := range []struct {
		path       []any
		text, want string
	}{
		{nil, "", root.Text},
		{[]any{"a", 0, "b.c"}, "a[0].b.c", "1"},
		{[]any{"a", 1, "b.c"}, "a[1].b.c", ""},
	} {
		if n := root.At(tc.path...); n.Text != tc.want || jsontree.JoinPath("", tc.path...) != tc.text {
			t.Errorf("%v: %+v, %s", tc.path, n, jsontree.JoinPath("", tc.path...))
		}
	}
	if root.At("a", 1, "b.c") != root.At("a") {
		t.Error("not the nearest value")
	}
}
