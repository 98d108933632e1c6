// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// Every accepted text is JSON, gives the same result each time, and satisfies the checks.

func FuzzMultusScratch(f *testing.F) {
	f.Add([]byte(formatMultusRecord(f, vfNetworkEntry("ns/net", devA), networkEntry("ns/b", "ifnameRequest", "fast0"))))
	f.Add([]byte(`[{"Name":"a/b","deviceID":"\u0030","Conf":{"name":null}},{"ConfList":null}]`))
	f.Add([]byte(strings.Repeat("[", 100)))
	f.Add([]byte("[{\"Name\":\"\xff\"}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		ds, err := parseDelegates(data)
		again, err2 := parseDelegates(data)
		if !reflect.DeepEqual(ds, again) || (err == nil) != (err2 == nil) {
			t.Fatal("two parses differ")
		}
		if err != nil {
			return
		}
		if !json.Valid(data) {
			t.Fatal("accepted, but not JSON")
		}
		seen := map[string]bool{}
		for _, d := range ds {
			if checkIfName(d.IfName) != nil || seen[d.IfName] || d.Name != "" && checkNetwork(d.Name) != nil ||
				d.DeviceID != "" && checkID(d.DeviceID) != nil || d.Resource != "" && checkID(d.Resource) != nil {
				t.Fatalf("accepted: %+v", d)
			}
			seen[d.IfName] = true
		}
	})
}

func FuzzCNIResult(f *testing.F) {
	f.Add([]byte(cniResult("conf", sandbox, "net1", devA)))
	f.Add([]byte(`{"kind":"cniCacheV1","capabilityArgs":{"deviceID":null,"CNIDeviceInfoFile":"/x"},"result":{"interfaces":[{"name":"net1","pciID":"x"}]}}`))
	f.Add([]byte(`{"capabilityArgs":[]}`))
	f.Add([]byte(`{"ifName":"net1","result":{"interfaces":[{"name":"net1","mac":"c2:11:22:33:44:55","mtu":9000,"sandbox":"/x"}],"ips":[{"address":"192.0.2.5/24","interface":0}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, r, err := parseResult(data)
		if err != nil {
			return
		}
		if !json.Valid(data) || c.CapabilityArgs.DeviceID != "" && checkID(c.CapabilityArgs.DeviceID) != nil {
			t.Fatalf("accepted: %+v", c)
		}
		if r.mac != canonicalMAC(r.mac) || r.mtu != validMTU(r.mtu) || slices.ContainsFunc(r.ips, isNoCIDR) {
			t.Fatalf("accepted: %+v", r)
		}
		if err := compareInterfaces("x", r, r, ""); err != nil {
			t.Fatal(err)
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
			t.Fatal("two parses differ")
		}
		for _, v := range e {
			for _, id := range v.ids {
				if checkID(id) != nil {
					t.Fatalf("accepted: ID %q", id)
				}
			}
			for id, d := range v.info {
				if !json.Valid([]byte(value)) || checkID(id) != nil {
					t.Fatalf("accepted: %q of %q", id, value)
				}
				for _, node := range d.nodes {
					if !strings.HasPrefix(node, "/dev/") {
						t.Fatalf("accepted: node %q", node)
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
				t.Fatalf("accepted: %+v", s)
			}
		}
	})
}
