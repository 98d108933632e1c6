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

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/edit"
)

func TestParseConfigReportsFaults(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "f:1:1: found the end of the text: the text is empty; a JSON value is required",
		"{\"ociVersion\": \"1\",\n é}":  `f:2:2: found '\u00e9': a key in double quotation marks is required`,
		`{"ociVersion":"1"} {}`:         "f:1:20: found '{': nothing may follow the end of the JSON value",
		"{\"ociVersion\":\"\xff\"}":     `f:1:16: found the byte 0xff: not valid UTF-8: save the file as UTF-8`,
		"[1]":                           "f:1:1: found an array: must be an object",
		"null":                          "f:1:1: invalid value null: must be an object",
		"{}":                            "f:1:1: ociVersion: a version is required",
		`{"ociVersion":null}`:           "f:1:15: ociVersion: a version is required",
		`{"ociVersion":1}`:              "f:1:15: ociVersion: found a number: must be a string",
		`{"ociVersion":""}`:             "f:1:15: ociVersion: a version is required",
		`{"OCIVersion":"1"}`:            `f:1:2: OCIVersion: must be spelled "ociVersion": some programs ignore case`,
		`{"ociVersion":"1","Linux":{}}`: `f:1:19: Linux: must be spelled "linux": some programs ignore case`,
		`{"ociVersion":"1","linux":{},"linux":{}}`:                             `f:1:30: found "linux": a key must occur only once`,
		`{"ociVersion":"1","annotations":{"a":"b","a":"b"}}`:                   `f:1:42: annotations: found "a": a key must occur only once`,
		`{"ociVersion":"1","mounts":[{"Destination":"/"}]}`:                    `f:1:30: mounts[0].Destination: must be spelled "destination": some programs ignore case`,
		`{"ociVersion":"1","mounts":[null]}`:                                   "f:1:29: mounts[0]: invalid value null: must be an object",
		`{"ociVersion":"1","linux":[]}`:                                        "f:1:27: linux: found an array: must be an object",
		`{"ociVersion":"1","process":"sh"}`:                                    "f:1:29: process: found a string: must be an object",
		`{"ociVersion":"1","mounts":{}}`:                                       "f:1:28: mounts: found an object: must be an array",
		`{"ociVersion":"1","mounts":[{},{"destination":1}]}`:                   "f:1:47: mounts[1].destination: found a number: must be a string",
		`{"ociVersion":"1","process":{"env":["A=b",{}]}}`:                      "f:1:43: process.env[1]: found an object: must be a string",
		`{"ociVersion":"1","process":{"user":{"uid":-1}}}`:                     "f:1:44: process.user.uid: invalid value -1: must be a whole number from 0 to 4294967295",
		`{"ociVersion":"1","process":{"user":{"additionalGids":["x"]}}}`:       "f:1:56: process.user.additionalGids[0]: found a string: must be a whole number from 0 to 4294967295",
		`{"ociVersion":"1","hooks":{"poststop":[{"timeout":"1"}]}}`:            "f:1:51: hooks.poststop[0].timeout: found a string: must be a whole number from -9223372036854775808 to 9223372036854775807",
		`{"ociVersion":"1","hooks":{"postStop":[]}}`:                           `f:1:28: hooks.postStop: must be spelled "poststop": some programs ignore case`,
		`{"ociVersion":"1","linux":{"resources":{"devices":[{"major":"1"}]}}}`: "f:1:61: linux.resources.devices[0].major: found a string: must be a whole number from -9223372036854775808 to 9223372036854775807",
		`{"ociVersion":"1","linux":{"devices":[{"fileMode":-1}]}}`:             "f:1:51: linux.devices[0].fileMode: invalid value -1: must be a whole number from 0 to 4294967295",
		`{"ociVersion":"1","linux":{"netDevices":{"eth0":{},"eth0":{}}}}`:      `f:1:52: linux.netDevices: found "eth0": a key must occur only once`,
		`{"ociVersion":"1","linux":{"netDevices":{"eth0":7}}}`:                 "f:1:49: linux.netDevices.eth0: found a number: must be an object",
		`{"ociVersion":"1","mounts":"` + strings.Repeat("é", 60) + `"}`:        "f:1:28: mounts: found a string: must be an array",
	} {
		_, err := ParseConfig("f", []byte(text))
		var d *diag.Diagnostic
		if !errors.As(err, &d) || !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if err.Error() != want {
			t.Errorf("%s:\n got %s\nwant %s", text, err, want)
		}
	}
}

// Values that no edit changes stay, however unusual they are, in the format of the text.
func TestOtherFieldsStay(t *testing.T) {
	set := &edit.Set{Env: []edit.Env{{Name: "B", Value: "2"}}, Mounts: []edit.Mount{{Destination: "/m", Source: "/s"}},
		Devices: []edit.Device{{Path: "/dev/a", Type: "c", Major: 1, Minor: 3}}, RDT: &edit.RDT{ClosID: "c"}}
	for text, want := range map[string]string{
		// One line, odd spaces, an unknown key that occurs twice, escapes in keys.
		` {"x" : {"a":1, "a":2},"ociVersion":"1","p\u0072ocess":{"env":["A=\u003c"  ,"NOVALUE"], "y":[ ] },"linux":{"devices":[{"path":"/dev/b","z":1.0}]}, "w":1E5 }` + "\n\n": `{"x":{"a":1,"a":2},"ociVersion":"1","process":{"env":["A=\u003c","NOVALUE","B=2"],"y":[]},"linux":{"devices":[{"path":"/dev/b","z":1.0},{"path":"/dev/a","type":"c","major":1,"minor":3}],"resources":{"devices":[{"allow":true,"type":"c","major":1,"minor":3,"access":"rwm"}]},"intelRdt":{"closID":"c"}},"w":1E5,"mounts":[{"destination":"/m","source":"/s"}]}` + "\n\n",
		// Line ends of Windows.
		"{\r\n  \"ociVersion\": \"1\",\r\n  \"process\": {\"env\": [\"B=1\"]},\r\n  \"mounts\": [],\r\n  \"linux\": {\"intelRdt\": {\"closID\": \"d\", \"new\": 1}}\r\n}": `{
  "ociVersion": "1",
  "process": {
    "env": [
      "B=2"
    ]
  },
  "mounts": [
    {
      "destination": "/m",
      "source": "/s"
    }
  ],
  "linux": {
    "intelRdt": {
      "closID": "c"
    },
    "devices": [
      {
        "path": "/dev/a",
        "type": "c",
        "major": 1,
        "minor": 3
      }
    ],
    "resources": {
      "devices": [
        {
          "allow": true,
          "type": "c",
          "major": 1,
          "minor": 3,
          "access": "rwm"
        }
      ]
    }
  }
}`,
	} {
		if diff := cmp.Diff(want, string(applyText(t, []byte(text), set))); diff != "" {
			t.Errorf("%s", diff)
		}
	}
}

func TestWideIndentationIsNotRepeated(t *testing.T) {
	text := "{\n" + strings.Repeat(" ", 1<<16) + `"ociVersion":"1"}`
	c, err := ParseConfig("config.json", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.Apply(&edit.Set{GIDs: []edit.GID{{ID: 7}}})
	if err != nil || len(out) > len(text)+100 {
		t.Errorf("%d bytes of %d, %v", len(out), len(text), err)
	}
}

// unchangedValues returns the values of text that no edit changes, without the objects that edits create.
func unchangedValues(tb testing.TB, text []byte) map[string]any {
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
	for _, path := range []string{"process.env", "process.user.additionalGids", "mounts", "linux.devices", "linux.resources.devices", "linux.netDevices", "linux.intelRdt", "linux.rootfsPropagation"} {
		drop(all, strings.Split(path, ".")...)
	}
	for _, s := range edit.Stages() {
		drop(all, "hooks", string(s))
	}
	return all
}

// hasStackedMounts reports whether two mounts have one destination. Each application of an edit
// replaces the first of them.
func hasStackedMounts(s *rspec.Spec) bool {
	for i := range s.Mounts {
		for j := range i {
			if edit.EqualClean(s.Mounts[i].Destination, s.Mounts[j].Destination) {
				return true
			}
		}
	}
	return false
}

// FuzzConfig: for every text there is an error, or a result in which other values are unchanged and
// which a second application does not change.
func FuzzConfig(f *testing.F) {
	f.Add(read(f, "base.json"), byte(255))
	f.Add([]byte(`{"ociVersion":"1.0.0"}`), byte(255))
	f.Add([]byte(`{"ociVersion":"1","process":{"user":null,"env":[null,"A"]},"mounts":[null,{"destination":"//m","x":[{"y":"]}\""}]}],"hooks":{"poststop":[{}]},"linux":{"devices":[{}],"netDevices":{"eth1":null},"resources":null}}`), byte(127))
	f.Add([]byte("\t{\n \"ociVersion\":\"1\" , \"\\u006counts\":1e999,\"linux\":{\"\":{}}}\r\n"), byte(8))
	f.Fuzz(func(t *testing.T, text []byte, which byte) {
		if len(text) > 1<<16 {
			t.Skip("too long to be of interest")
		}
		var set edit.Set
		for i, part := range []func(){
			func() { set.Env = cases["env"].Env }, func() { set.Devices = cases["devices"].Devices }, func() { set.Mounts = cases["mounts"].Mounts },
			func() { set.Hooks = cases["hooks"].Hooks }, func() { set.NetDevices = cases["net-devices"].NetDevices },
			func() { set.RDT = cases["rdt"].RDT }, func() { set.GIDs = cases["gids"].GIDs },
		} {
			if which>>i&1 == 1 {
				part()
			}
		}
		c, err := ParseConfig("config.json", text)
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
		if diff := cmp.Diff(unchangedValues(t, text), unchangedValues(t, out)); diff != "" {
			t.Fatalf("another value changed: %s", diff)
		}
		if after, err := json.Marshal(have); err != nil || !bytes.Equal(before, after) {
			t.Fatalf("the config itself changed: %v", err)
		}
		again, err := ParseConfig("config.json", out)
		if err != nil {
			t.Fatalf("%v in\n%s", err, out)
		}
		if set.Hooks = nil; hasStackedMounts(have) {
			return
		}
		if twice, err := again.Apply(&set); err != nil || !bytes.Equal(twice, out) {
			t.Fatalf("the second application changes: %v\n%s", err, cmp.Diff(string(out), string(twice)))
		}
	})
}
