// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// Whatever is read is JSON, says the same every time, and holds nothing that its
// checks keep out.

func FuzzMultusScratch(f *testing.F) {
	f.Add([]byte(scratchOf(f, vfNet("ns/net", devA), net("ns/b", "ifnameRequest", "fast0"))))
	f.Add([]byte(`[{"Name":"a/b","deviceID":"\u0030","Conf":{"name":null}},{"ConfList":null}]`))
	f.Add([]byte(strings.Repeat("[", 100)))
	f.Add([]byte("[{\"Name\":\"\xff\"}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		ds, err := parseDelegates(data)
		again, err2 := parseDelegates(data)
		if !reflect.DeepEqual(ds, again) || (err == nil) != (err2 == nil) {
			t.Fatal("two readings differ")
		}
		if err != nil {
			return
		}
		if !json.Valid(data) {
			t.Fatal("taken, and not JSON")
		}
		seen := map[string]bool{}
		for _, d := range ds {
			if checkIfName(d.ifName) != nil || seen[d.ifName] || d.name != "" && checkNetwork(d.name) != nil ||
				d.deviceID != "" && checkID(d.deviceID) != nil || d.resource != "" && checkID(d.resource) != nil {
				t.Fatalf("taken: %+v", d)
			}
			seen[d.ifName] = true
		}
	})
}

func FuzzCNIResult(f *testing.F) {
	f.Add([]byte(resultOf("conf", sandbox, "net1", devA)))
	f.Add([]byte(`{"kind":"cniCacheV1","capabilityArgs":{"deviceID":null,"CNIDeviceInfoFile":"/x"},"result":{"interfaces":[{"name":"net1","pciID":"x"}]}}`))
	f.Add([]byte(`{"capabilityArgs":[]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parseResult(data)
		if err != nil {
			return
		}
		if !json.Valid(data) || c.deviceID != "" && checkID(c.deviceID) != nil {
			t.Fatalf("taken: %+v", c)
		}
	})
}

func FuzzPCIDeviceInfo(f *testing.F) {
	f.Add(`{"0000:03:00.2":{"generic":{"deviceID":"0000:03:00.2"},"vfio":{"mount":"/dev/vfio/vfio","dev-mount":"/dev/vfio/12"}}}`)
	f.Add(`{"0000:3b:02.6":{"extraInfo":{"token":"x"},"vfio":{"vfio-dev-mount":"/dev/vfio/169","vfio-mount":"/dev/vfio/vfio"},"vhost":{"net-mount":"/dev/vhost-net"}}}`)
	f.Add(`{"a":{"rdma":{"rdma_dev":"mlx5_0","uverbs":7}},"a":{}}`)
	f.Add(`0000:03:00.2,0000:03:00.3`)
	f.Fuzz(func(t *testing.T, value string) {
		env := []string{"PCIDEVICE_A=" + devA, "PCIDEVICE_A_INFO=" + value}
		e, notes := parseEnvironment(env)
		again, notes2 := parseEnvironment(env)
		if !reflect.DeepEqual(e, again) || !reflect.DeepEqual(notes, notes2) {
			t.Fatal("two readings differ")
		}
		for _, v := range e {
			for _, id := range v.ids {
				if checkID(id) != nil {
					t.Fatalf("taken: ID %q", id)
				}
			}
			for id, d := range v.info {
				if !json.Valid([]byte(value)) || checkID(id) != nil {
					t.Fatalf("taken: %q of %q", id, value)
				}
				for _, node := range d.nodes {
					if !strings.HasPrefix(node, "/dev/") {
						t.Fatalf("taken: node %q", node)
					}
				}
			}
		}
		for _, n := range notes {
			if !utf8.ValidString(n) || len(n) > 1024 {
				t.Fatalf("a note of %d bytes: %q", len(n), n)
			}
		}
	})
}

func FuzzNetworksAnnotation(f *testing.F) {
	f.Add("a, ns/b@net1,c@")
	f.Add(`[{"name":"a","namespace":"ns","interface":"net1","deviceID":"x"}]`)
	f.Add(`[{"name":"a/b/c"}]`)
	f.Add("\"")
	f.Fuzz(func(t *testing.T, value string) {
		list, err := parseNetworks(value, "pod-ns")
		if err != nil {
			if list != nil || !utf8.ValidString(err.Error()) || len(err.Error()) > 1024 {
				t.Fatalf("%d networks, and an error of %d bytes", len(list), len(err.Error()))
			}
			return
		}
		for _, s := range list {
			if checkNetwork(s.network) != nil || strings.Count(s.network, "/") != 1 || s.ifName != "" && checkIfName(s.ifName) != nil {
				t.Fatalf("taken: %+v", s)
			}
		}
	})
}

// The reader takes no text that encoding/json refuses, and refuses none that it
// takes, but for what is nested too deeply or is not UTF-8.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5e3,"\u00e9",null,true]}`, `[[[[]]]]`, `"\ud800"`, `{"a":1,"a":2}`, ` `, `-`, `1e5`, `"\/"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		err := skipAll(data)
		switch valid := json.Valid(data); {
		case err == nil && !valid:
			t.Fatalf("taken: %q", data)
		case err != nil && valid && utf8.Valid(data) && !strings.Contains(err.Error(), "inside each other"):
			t.Fatalf("refused: %q: %v", data, err)
		}
		r, err := newJSONReader(data)
		if err != nil || r.peek() != '"' {
			return
		}
		var want string
		got, err := r.text()
		if err == nil && r.end() == nil && (json.Unmarshal(data, &want) != nil || got != want) {
			t.Fatalf("%q read as %q, want %q", data, got, want)
		}
	})
}
