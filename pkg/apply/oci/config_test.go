// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	rspec "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jackfield/jackfield/pkg/edits"
)

func TestWhatIsNoSpecIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "line 1, column 1: is not JSON: unexpected end of JSON input",
		"{\"ociVersion\": \"1\",\n é}":  "line 2, column 2: is not JSON: invalid character 'Ã' looking for beginning of object key string",
		`{"ociVersion":"1"} {}`:         "line 1, column 20: is not JSON: invalid character '{' after top-level value",
		"[1]":                           "line 1, column 1: found [1]: an OCI spec is a JSON object",
		"null":                          "line 1, column 1: found null: an OCI spec is a JSON object",
		"{}":                            "line 1, column 1: ociVersion: the field is missing: an OCI spec has a version",
		`{"ociVersion":null}`:           "line 1, column 1: ociVersion: the field is missing: an OCI spec has a version",
		`{"ociVersion":1}`:              "line 1, column 15: ociVersion: found 1: must be a version",
		`{"ociVersion":""}`:             `line 1, column 15: ociVersion: found "": must be a version`,
		`{"OCIVersion":"1"}`:            `line 1, column 2: OCIVersion: found "OCIVersion": must be spelled "ociVersion": some runtimes would take it for that`,
		`{"ociVersion":"1","Linux":{}}`: `line 1, column 19: Linux: found "Linux": must be spelled "linux": some runtimes would take it for that`,
		`{"ociVersion":"1","linux":{},"linux":{}}`:                             `line 1, column 30: linux: found "linux": must not be there twice`,
		`{"ociVersion":"1","linux":[]}`:                                        "line 1, column 27: linux: must be an object",
		`{"ociVersion":"1","process":"sh"}`:                                    `line 1, column 29: process: found "sh": must be an object`,
		`{"ociVersion":"1","mounts":{}}`:                                       "line 1, column 28: mounts: must be a list",
		`{"ociVersion":"1","mounts":[{},{"destination":1}]}`:                   "line 1, column 32: mounts[1].destination: found number: must be a string",
		`{"ociVersion":"1","process":{"env":["A=b",{}]}}`:                      "line 1, column 43: process.env[1]: found object: must be a string",
		`{"ociVersion":"1","process":{"user":{"uid":-1}}}`:                     "line 1, column 44: process.user.uid: found number -1: must be a whole number of type uint32",
		`{"ociVersion":"1","process":{"user":{"additionalGids":["x"]}}}`:       `line 1, column 56: process.user.additionalGids[0]: found string: must be a whole number of type uint32`,
		`{"ociVersion":"1","hooks":{"poststop":[{"timeout":"1"}]}}`:            "line 1, column 40: hooks.poststop[0].timeout: found string: must be a whole number of type int",
		`{"ociVersion":"1","hooks":{"postStop":[]}}`:                           `line 1, column 28: hooks.postStop: found "postStop": must be spelled "poststop": some runtimes would take it for that`,
		`{"ociVersion":"1","linux":{"resources":{"devices":[{"major":"1"}]}}}`: "line 1, column 52: linux.resources.devices[0].major: found string: must be a whole number of type int64",
		`{"ociVersion":"1","linux":{"devices":[{"fileMode":-1}]}}`:             "line 1, column 39: linux.devices[0].fileMode: found number -1: must be a whole number of type uint32",
		`{"ociVersion":"1","linux":{"netDevices":{"eth0":{},"eth0":{}}}}`:      `line 1, column 52: linux.netDevices.eth0: found "eth0": must not be there twice`,
		`{"ociVersion":"1","linux":{"netDevices":{"eth0":7}}}`:                 "line 1, column 49: linux.netDevices.eth0: found number: must be an object",
		`{"ociVersion":"1","mounts":"` + strings.Repeat("é", 60) + `"}`:        `line 1, column 28: mounts: found "` + strings.Repeat("é", 19) + `...: must be a list`,
	} {
		_, err := ParseConfig([]byte(text))
		var e *ConfigError
		if !errors.As(err, &e) || !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if err.Error() != want {
			t.Errorf("%s:\n got %s\nwant %s", text, err, want)
		}
	}
}

// The bytes that no edit reaches stay, however odd they are.
func TestTheRestStaysByteForByte(t *testing.T) {
	set := &edits.Set{Env: []edits.Env{{Name: "B", Value: "2"}}, Mounts: []edits.Mount{{Destination: "/m", Source: "/s"}},
		Devices: []edits.Device{{Path: "/dev/a", Type: "c", Major: 1, Minor: 3}}, RDT: &edits.RDT{ClosID: "c"}}
	for text, want := range map[string]string{
		// One line, odd spaces, the same key twice where nobody looks, escapes in keys.
		` {"x" : {"a":1, "a":2},"ociVersion":"1","p\u0072ocess":{"env":["A=\u003c"  ,"\ud800=NOUTF8"], "y":[ ] },"linux":{"devices":[{"path":"/dev/b","z":1.0}]}, "w":1E5 }` + "\n\n": ` {"x" : {"a":1, "a":2},"ociVersion":"1","p\u0072ocess":{"env":["A=\u003c","\ud800=NOUTF8","B=2"], "y":[ ] },"linux":{"devices":[{"path":"/dev/b","z":1.0},{"path":"/dev/a","type":"c","major":1,"minor":3}],"resources":{"devices":[{"allow":true,"type":"c","major":1,"minor":3,"access":"rwm"}]},"intelRdt":{"closID":"c"}}, "w":1E5,"mounts":[{"destination":"/m","source":"/s"}] }` + "\n\n",
		// Windows' ends of lines stay where they were.
		"{\r\n  \"ociVersion\": \"1\",\r\n  \"process\": {\"env\": [\"B=1\"]},\r\n  \"mounts\": [],\r\n  \"linux\": {\"devices\": [], \"resources\": {\"devices\": []}, \"intelRdt\": {\"closID\": \"d\", \"new\": 1}}\r\n}": "{\r\n  \"ociVersion\": \"1\",\r\n  \"process\": {\"env\": [\n      \"B=2\"\n    ]},\r\n  \"mounts\": [\n    {\n      \"destination\": \"/m\",\n      \"source\": \"/s\"\n    }\n  ],\r\n  \"linux\": {\"devices\": [\n      {\n        \"path\": \"/dev/a\",\n        \"type\": \"c\",\n        \"major\": 1,\n        \"minor\": 3\n      }\n    ], \"resources\": {\"devices\": [\n        {\n          \"allow\": true,\n          \"type\": \"c\",\n          \"major\": 1,\n          \"minor\": 3,\n          \"access\": \"rwm\"\n        }\n      ]}, \"intelRdt\": {\n      \"closID\": \"c\"\n    }}\r\n}",
	} {
		// A byte that is no UTF-8, in both.
		text, want = strings.ReplaceAll(text, "NOUTF8", "\xff"), strings.ReplaceAll(want, "NOUTF8", "\xff")
		out := applyText(t, []byte(text), set)
		if diff := cmp.Diff(want, string(out)); diff != "" {
			t.Errorf("%s", diff)
		}
	}
}

// An indentation is repeated on every line that is written.
func TestAnAbsurdIndentationIsNotRepeated(t *testing.T) {
	text := "{\n" + strings.Repeat(" ", 1<<16) + `"ociVersion":"1"}`
	c, err := ParseConfig([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.Apply(&edits.Set{GIDs: []edits.GID{{ID: 7}}})
	if err != nil || len(out) > len(text)+100 {
		t.Errorf("%d bytes of %d, %v", len(out), len(text), err)
	}
}

// rest is what no edit reaches: the text's values without the parts that edits
// change, and without the objects that they make.
func rest(tb testing.TB, text []byte) map[string]any {
	tb.Helper()
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var all map[string]any
	if err := dec.Decode(&all); err != nil {
		tb.Fatalf("%v in\n%s", err, text)
	}
	var drop func(in map[string]any, path ...string)
	drop = func(in map[string]any, path ...string) {
		if len(path) == 1 {
			delete(in, path[0])
			return
		}
		below, _ := in[path[0]].(map[string]any)
		if drop(below, path[1:]...); len(below) == 0 {
			delete(in, path[0])
		}
	}
	for _, path := range []string{"process.env", "process.user.additionalGids", "mounts", "linux.devices", "linux.resources.devices", "linux.netDevices", "linux.intelRdt"} {
		drop(all, strings.Split(path, ".")...)
	}
	for _, s := range edits.Stages() {
		drop(all, "hooks", string(s))
	}
	return all
}

// stacked tells that two mounts have one destination: then an edit takes the place
// of the first each time it is made.
func stacked(s *rspec.Spec) bool {
	for i := range s.Mounts {
		for j := range i {
			if edits.SameSpelling(s.Mounts[i].Destination, s.Mounts[j].Destination) {
				return true
			}
		}
	}
	return false
}

// FuzzConfig: whatever the text, there is an error or a spec with the edits, in
// which everything else is as it was.
func FuzzConfig(f *testing.F) {
	f.Add(read(f, "base.json"), byte(255))
	f.Add([]byte(`{"ociVersion":"1.0.0"}`), byte(255))
	f.Add([]byte(`{"ociVersion":"1","process":{"user":null,"env":[null,"A"]},"mounts":[null,{"destination":"//m","x":[{"y":"]}\""}]}],"hooks":{"poststop":[{}]},"linux":{"devices":[{}],"netDevices":{"eth1":null},"resources":null}}`), byte(127))
	f.Add([]byte("\t{\n \"ociVersion\":\"1\" , \"\\u006counts\":1e999,\"linux\":{\"\":{}}}\r\n"), byte(8))
	f.Fuzz(func(t *testing.T, text []byte, which byte) {
		if len(text) > 1<<16 {
			t.Skip("too long to be of interest")
		}
		var set edits.Set
		for i, part := range []func(){
			func() { set.Env = cases["env"].Env }, func() { set.Devices = cases["devices"].Devices }, func() { set.Mounts = cases["mounts"].Mounts },
			func() { set.Hooks = cases["hooks"].Hooks }, func() { set.NetDevices = cases["net-devices"].NetDevices },
			func() { set.RDT = cases["rdt"].RDT }, func() { set.GIDs = cases["gids"].GIDs },
		} {
			if which>>i&1 == 1 {
				part()
			}
		}
		c, err := ParseConfig(text)
		if err != nil {
			if !errdefs.IsInvalidArgument(err) {
				t.Fatal(err)
			}
			return
		}
		have := c.Spec()
		before, err := json.Marshal(have)
		if err != nil {
			t.Fatal(err)
		}
		out, err := c.Apply(&set)
		if err != nil {
			if !errdefs.IsConflict(err) {
				t.Fatal(err)
			}
			return
		}
		if diff := cmp.Diff(rest(t, text), rest(t, out)); diff != "" {
			t.Fatalf("something else changed: %s", diff)
		}
		if after, err := json.Marshal(have); err != nil || !bytes.Equal(before, after) {
			t.Fatalf("the config itself changed: %v", err)
		}
		again, err := ParseConfig(out)
		if err != nil {
			t.Fatalf("%v in\n%s", err, out)
		}
		if err := Apply(have, &set); err != nil {
			t.Fatal(err)
		}
		if diff := sameSpec(have, again.Spec()); diff != "" {
			// The RDT configuration and empty objects are not read back.
			have.Linux, again.Spec().Linux = withoutRDT(have.Linux), withoutRDT(again.Spec().Linux)
			if diff = sameSpec(have, again.Spec()); diff != "" {
				t.Fatalf("the value and the text differ: %s\n%s", diff, out)
			}
		}
		if set.Hooks = nil; stacked(have) {
			return
		}
		if twice, err := again.Apply(&set); err != nil || !bytes.Equal(twice, out) {
			t.Fatalf("a second time it changes: %v\n%s", err, cmp.Diff(string(out), string(twice)))
		}
	})
}

func withoutRDT(l *rspec.Linux) *rspec.Linux {
	if l == nil {
		return &rspec.Linux{}
	}
	c := *l
	c.IntelRdt = nil
	return &c
}
