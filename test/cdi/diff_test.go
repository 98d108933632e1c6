// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"flag"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

var rounds = flag.Int("cdi.rounds", 2000, "number of generated spec files to compare")

// compareSpecFile compares what both sides make of a text. It reports whether both accept it.
func compareSpecFile(tb testing.TB, dir string, text []byte) (usable bool) {
	tb.Helper()
	ours, diags := parseText(text)
	theirs, err := parseUpstream(dir, text)
	if why, ok := isIntended(text, diags, err); !ok {
		tb.Fatalf("jackfield: %v\nupstream: %v\n(%s) on\n%s", diags, err, why, text)
	}
	if len(diags) > 0 || err != nil {
		return false
	}
	if err := compareSpecs(ours, theirs); err != nil {
		tb.Fatalf("%v\non\n%s", err, text)
	}
	return true
}

// TestRandomSpecFilesAgreeWithUpstream compares both sides on generated texts, most of them nearly valid.
func TestRandomSpecFilesAgreeWithUpstream(t *testing.T) {
	dir := t.TempDir()
	g := generator{rand.New(rand.NewPCG(7, 11))}
	usable := 0
	for range *rounds {
		if compareSpecFile(t, dir, g.text()) {
			usable++
		}
	}
	t.Logf("%d of %d usable for both", usable, *rounds)
	if usable < *rounds/5 || usable > *rounds*9/10 {
		t.Errorf("%d of %d texts are usable: the generator tests only one side", usable, *rounds)
	}
}

// FuzzSpecFileAgreesWithUpstream compares both sides on any text.
func FuzzSpecFileAgreesWithUpstream(f *testing.F) {
	g := generator{rand.New(rand.NewPCG(1, 2))}
	for range 100 {
		f.Add(g.text())
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 1<<14 {
			t.Skip("the text is too long")
		}
		compareSpecFile(t, dir, text)
	})
}

// TestHardSpecFilesAgreeWithUpstream compares both sides on texts that are known to be hard to parse.
func TestHardSpecFilesAgreeWithUpstream(t *testing.T) {
	dir := t.TempDir()
	device := func(edits string) string {
		return `{"cdiVersion":"1.1.0","kind":"v.com/c","devices":[{"name":"d","containerEdits":` + edits + `}]}`
	}
	for _, text := range []string{
		"", " ", "null", "[]", "{}", "---", "---\n...\n", "\xef\xbb\xbf" + device(`{"env":["A=b"]}`),
		device(`{"env":["A=b"],}`), device(`{"env":["A=b"]}`) + " # note\n", device(`{"env":["A=\/b"]}`),
		device(`{"env":["A=\ud83d\ude00"]}`), device(`{"env":["A=\ud83d"]}`), device(`{"env":["A=\u0000"]}`),
		device("{\"env\":[\"A=\xff\"]}"), device("{\"env\":[\"A=\x7f\"]}"), device("{\"env\":[\"A=\x01\"]}"),
		device("{\"env\":[\"A=a\nb\"]}"), device("{\"env\":[\"A=a\tb\"]}"),
		device(`{"deviceNodes":[{"path":"/dev/x","major":1e2}]}`), device(`{"deviceNodes":[{"path":"/dev/x","major":1.0,"fileMode":0666}]}`),
		device(`{"deviceNodes":[{"path":"/dev/x","major":1e17,"minor":9.3e18}]}`), device(`{"deviceNodes":[{"path":"/dev/x","major":9.2e18}]}`),
		device(`{"deviceNodes":[{"path":"/dev/x","major":"3"}]}`), device(`{"deviceNodes":[{"path":"/dev/x","uid":4294967296}]}`),
		device(`{"deviceNodes":{}}`), device(`{"deviceNodes":null}`), device(`{"env":"A=B"}`), device(`{"env":[],"mounts":[]}`),
		device(`{"intelRdt":{}}`), device(`{"intelRdt":{"schemata":[]}}`), device(`{"intelRdt":{"enableMonitoring":"yes"}}`),
		device(`{"intelRdt":{"enableMonitoring":"true"}}`), device(`{"intelRdt":{"enableMonitoring":1}}`), device(`{"intelRdt":{"closID":"a/b"}}`),
		strings.Replace(device(`{"env":["A=b"]}`), `"d"`, "0", 1), strings.Replace(device(`{"env":["A=b"]}`), `"d"`, "true", 1),
		strings.Replace(device(`{"env":["A=b"]}`), `"d"`, "null", 1), strings.Replace(device(`{"env":["A=b"]}`), "1.1.0", "v1.1.0", 1),
		strings.Replace(device(`{"env":["A=b"]}`), "1.1.0", "0.2.0", 1), strings.Replace(device(`{"env":["A=b"]}`), "v.com/c", "v.com/c/d", 1),
		strings.Replace(device(`{"env":["A=b"]}`), "v.com/c", "/c", 1), strings.Replace(device(`{"env":["A=b"]}`), "v.com/c", "v.com/", 1),
		"cdiVersion: 0.6.0\nkind: v.com/c\ndevices:\n- name: 0\n  containerEdits: &e\n    env: [A=B]\n- name: 0x10\n  containerEdits:\n    <<: *e\n    mounts: [{hostPath: /a, containerPath: /b}]\n",
		"cdiVersion: 0.6.0\nkind: v.com/c\ndevices:\n- name: a\n  containerEdits: &e\n    env: [A=B]\n- name: b\n  containerEdits:\n    env: [C=D]\n    <<: [*e, {env: [E=F]}]\n",
		"cdiVersion: 0.6.0\nkind: v.com/c\ndevices:\n- name: !!binary YQ==\n  containerEdits:\n    env: [A=B]\n",
		"cdiVersion: 0.6.0\nkind: v.com/c\ndevices:\n- name: d\n  containerEdits:\n    deviceNodes: [{path: /dev/x, fileMode: 0666, uid: 0o17, gid: 1_000, major: 0x10}]\n",
		"cdiVersion: 0.6.0\nkind: v.com/c\n~: b\ndevices:\n- name: d\n  containerEdits:\n    env: [A=B]\n",
		"cdiVersion: 0.6.0\nkind: v.com/c\n? [a]\n: b\ndevices:\n- name: d\n  containerEdits:\n    env: [A=B]\n",
		"cdiVersion: 0.6.0\nkind: v.com/c\nannotations: {a: !!bool yes}\ndevices:\n- name: d\n  containerEdits:\n    env: [A=B]\n",
		"cdiVersion: 0.6.0\nkind: v.com/c\nannotations: {!!null x: b}\ndevices:\n- name: d\n  containerEdits:\n    env: [A=B]\n",
		"cdiVersion: 0.6.0\nkind: v.com/c\ncontainerEdits: !!null x\ndevices:\n- name: d\n  containerEdits:\n    env: [A=B]\n",
		"cdiVersion: 0.6.0\nkind: v.com/c\ndevices:\n- &d\n  name: d\n  containerEdits:\n    env: [A=B]\n- <<: *d\n  <<: *d\n  name: e\n",
		"cdiVersion: 0.6.0\nkind: !foo v.com/c\ndevices:\n- name: d\n  containerEdits:\n    env: !bar [!!str A=B]\n",
		"cdiVersion: 0.6.0\nkind: v.com/c\nannotations: {1: b, true: d, x: ~}\ndevices:\n- name: d\n  containerEdits:\n    env: [A=B]\n",
		"cdiVersion: 0.6.0\nkind: v.com/c\ndevices: &a\n- *a\n", "a: &a [*a]\n", "&a {<<: *a}\n",
		"cdiVersion: 0.6.0\r\nkind: v.com/c\r\ndevices:\r\n- name: d\r\n  containerEdits:\r\n    env: [A=B]\r\n---\n",
		strings.Repeat("[", 100000), strings.Repeat(`{"a":`, 5000), "a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nd: [*c,*c]\n",
	} {
		compareSpecFile(t, dir, []byte(text))
	}
	for _, dir := range []string{"../../pkg/cdi/testdata/good", "../../pkg/cdi/testdata/bad"} {
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			text, err := os.ReadFile(dir + "/" + f.Name())
			if err != nil {
				t.Fatal(err)
			}
			compareSpecFile(t, t.TempDir(), text)
		}
	}
}
