// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	rspec "github.com/opencontainers/runtime-spec/specs-go"
)

// plainTypes are those that lists of an OCI spec have, and values of its own.
func plainTypes() []any {
	return []any{new(string), new([]string), new(map[string]string), new(bool), new(int), new(int64), new(uint32), new(*int), new(*int64), new(*uint32), new(*os.FileMode),
		new(rspec.Mount), new(rspec.Hook), new(rspec.LinuxDevice), new(rspec.LinuxDeviceCgroup), new(rspec.LinuxNamespace), new(rspec.State)}
}

// What a runtime writes is plain.
func TestPlain(t *testing.T) {
	for text, into := range map[string]any{
		`{"destination":"/proc","type":"proc","source":"proc","options":["nosuid"]}`:          new(rspec.Mount),
		`{"path":"/bin/x","args":["x","a b"],"env":["A=b"],"timeout":10}`:                     new(rspec.Hook),
		`{"path":"/dev/a","type":"c","major":1,"minor":3,"fileMode":438,"uid":0,"gid":65534}`: new(rspec.LinuxDevice),
		`{"allow":true,"type":"c","major":-1,"minor":0,"access":"rwm"}`:                       new(rspec.LinuxDeviceCgroup),
		`{"type":"user","path":"/proc/1/ns/user"}`:                                            new(rspec.LinuxNamespace),
	} {
		if !readPlain(text, span{0, len(text)}, into) {
			t.Errorf("%s is read by encoding/json", text)
		}
		if out, ok := appendPlain(nil, into); !ok || string(out) != text {
			t.Errorf("%s is written as %s, %v", text, out, ok)
		}
	}
}

// FuzzPlain: what is plain is read and written as encoding/json does it.
func FuzzPlain(f *testing.F) {
	for _, text := range []string{
		`{"destination":"/a","type":"bind","options":[],"options":["ro","x=\"y\""],"source":null}`, `{"Destination":"/a","more":{}}`,
		`{"destination":"/a","uidMappings":[{"containerID":1}]}`, `{"path":"/dev/a","type":"c","major":1,"minor":4294967296,"fileMode":-1,"uid":4294967295}`,
		`{"path":"/h","args":["<&>"],"env":null,"timeout":1.0}`, `{"allow":false,"access":"rwm","major":-1}`, ` [ "a" , "\u0000" ]`, "\"\u2028\xff\x7f\"", `-0`, `{"ociVersion":"1","id":"c","status":"created","pid":1,"bundle":"/b","annotations":{"a":"b","a":"c","\u0061":"d"}}`, `{"a":null}`, `1e3`, `null`, `true`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if !json.Valid(text) {
			t.Skip("not JSON")
		}
		start := skipSpace(string(text), 0)
		at := span{start, skipValue(string(text), start)}
		for _, into := range plainTypes() {
			want := reflect.New(reflect.TypeOf(into).Elem()).Interface()
			err := json.Unmarshal(text, want)
			if readPlain(string(text), at, into) {
				if diff := cmp.Diff(want, into); err != nil || diff != "" {
					t.Errorf("%T of %s: %v, %s", into, text, err, diff)
				}
			}
			if err != nil {
				continue
			}
			var written bytes.Buffer
			enc := json.NewEncoder(&written)
			enc.SetEscapeHTML(false)
			if err := enc.Encode(want); err != nil {
				t.Fatal(err)
			}
			if out, ok := appendPlain([]byte("before"), want); ok && string(out)+"\n" != "before"+written.String() {
				t.Errorf("%T: %s, want %s", want, out, written.String())
			}
		}
	})
}

func TestParseState(t *testing.T) {
	for _, text := range []string{
		"{\"ociVersion\":\"1.2.0\",\"id\":\"c\",\"status\":\"creating\",\"pid\":7,\"bundle\":\"/b\",\"annotations\":{\"a\":\"b\"}}\n",
		`{"ociVersion":"1.2.0","id":"c","pid":7,"owner":"root","annotations":{"a":"\"b\""}}`, `{"id":"c","pid":7,"ID":"d"}`, ` {} `, `null`, ``, `[]`, `{"pid":"7"}`, `{}{}`,
	} {
		var want rspec.State
		failure := json.Unmarshal([]byte(text), &want)
		got, err := ParseState([]byte(text))
		if failure != nil {
			if err == nil || err.Error() != failure.Error() {
				t.Errorf("%s: %v, want %v", text, err, failure)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("%s: %+v, %v, want %+v", text, got, err, want)
		}
	}
}
