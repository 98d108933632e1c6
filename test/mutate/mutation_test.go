// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestMutationsAreUpToDate(t *testing.T) {
	const top = "../.."
	mutations, err := readMutations("../mutations", nil)
	if err != nil {
		t.Fatal(err)
	}
	files, err := readProduct(top)
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range findFaults(top, files, mutations) {
		t.Error(fault)
	}
}

func TestEditIsFoundWhereverItIs(t *testing.T) {
	files := map[string][]byte{
		"a/a.go": []byte("x\n\tif ok &&\n\t\tdone {\n\t\tstop()\n\t}\n"),
		"b/b.go": []byte("same()\nunsame()\n"),
		"c/c.go": []byte("same()\n"),
	}
	tests := []struct{ text, want, fault string }{
		{"-if ok && done {\n+if ok {\n", "a/a.go: x\n\tif ok {\n\t\tstop()\n\t}\n", ""},
		{" if ok && done {\n-stop()\n", "a/a.go: x\n\tif ok && done {\n\t}\n", ""},
		{"in c\n-same()\n", "c/c.go: \n", ""},
		{"in b/b.go\n-same()\n+x()\n", "b/b.go: x()\nunsame()\n", ""},
		{"-x\n+y\n\n-stop()\n+one()\n+two()\n", "a/a.go: y\n\tif ok &&\n\t\tdone {\n\t\tone()\n\t\ttwo()\n\t}\n", ""},
		{"-same()\n", "", "b/b.go:1, c/c.go:1 have this text"},
		{"-if ok {\n", "", "no file has this text"},
		{"in a\n-same()\n", "", "no file has this text"},
		{"+added\n", "", "no line to find"},
		{" x\n", "", "changes nothing"},
		{"x\n", "", "invalid line"},
	}
	for _, test := range tests {
		m, err := parseMutation("name", "go test .\n\n"+test.text)
		var changed map[string][]byte
		if err == nil {
			changed, err = m.apply(files)
		}
		var got string
		for _, name := range slices.Sorted(maps.Keys(changed)) {
			got += name + ": " + string(changed[name])
		}
		if got != test.want || (err == nil) != (test.fault == "") || err != nil && !strings.Contains(err.Error(), test.fault) {
			t.Errorf("%q: %q, %v; want %q, %q", test.text, got, err, test.want, test.fault)
		}
	}
}

func TestCommandNeedsItsTests(t *testing.T) {
	for command, fault := range map[string]string{
		"go test .": "",
		"go test -count=1 . -run TestCommandNeeds":                             "",
		"cd ../mutate && go test . -timeout 60s -run TestCommandNeedsItsTests": "",
		`go test . -run "TestCommandNeeds|TestEdit.*/of a part"`:               "invalid command",
		`go test . -run "TestCommandNeeds|TestEdit/part"`:                      "",
		"go test ./missing -run TestCommandNeeds":                              "no such file",
		"go test . -run TestMissing":                                           "has no test TestMissing",
		`go test . -run "TestCommandNeeds|TestMissing"`:                        "has no test TestMissing",
		"make test": "invalid command",
	} {
		err := checkCommand(".", command)
		if (err == nil) != (fault == "") || err != nil && !strings.Contains(err.Error(), fault) {
			t.Errorf("%s: %v; want %q", command, err, fault)
		}
	}
}
