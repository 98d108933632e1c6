// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"strings"
	"testing"
)

func TestDecodeYAMLSplitsDocumentsAndReportsLines(t *testing.T) {
	docs, err := DecodeYAML([]byte("# a comment\n---\n---\na: {b: 2026-11-23, c: 1, d: 'x'}\n--- # another\n[true]\n...\n"))
	if err != nil || len(docs) != 2 || string(docs[0]) != `{"a":{"b":"2026-11-23","c":1,"d":"x"}}` || string(docs[1]) != "[true]" {
		t.Errorf("%q, %v", docs, err)
	}
	// Keys that YAML does not read as strings are strings in JSON: ConfigMaps name ports.
	docs, err = DecodeYAML([]byte("data: {8080: &port a, true: b, 1.5: *port}\nmore: {<<: {0: c}}\n"))
	if err != nil || len(docs) != 1 || string(docs[0]) != `{"data":{"1.5":"a","8080":"a","true":"b"},"more":{"0":"c"}}` {
		t.Errorf("%q, %v", docs, err)
	}
	// Not all JSON is YAML.
	docs, err = DecodeYAML([]byte("\t{\"a\": \"\\ud83d\\ude00\"\n, \"b\"\n: 1}\n"))
	if err != nil || len(docs) != 1 || string(docs[0]) != `{"a":"\ud83d\ude00","b":1}` {
		t.Errorf("%q, %v", docs, err)
	}
	for text, want := range map[string]string{
		"a: 1\n---\nb: [\n":      "line 3",
		"a: 1\n---\nb: 1\nb: 2":  "line 4",
		"a: &a [*a]\n":           "contains itself",
		"? {a: b}\n: c\n":        "",
		"a: .nan\n":              "NaN",
		"\x00":                   "control characters",
		"a: !!binary not base64": "",
	} {
		if docs, err := DecodeYAML([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %q, %v; want an error with %q", text, docs, err, want)
		}
	}
}
