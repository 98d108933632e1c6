// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"

	"github.com/jackfield/jackfield/internal/base/name"
)

func FuzzParse(f *testing.F) {
	for _, dir := range []string{"good", "bad", "status"} {
		for _, data := range readSources(f, dir) {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		_, statusErr := ParseNetworkStatus(data, "f")
		if statusErr != nil {
			diagnosticsOf(t, statusErr)
		}
		info, err := Parse(data, "f")
		if err != nil {
			diagnosticsOf(t, err)
			return
		}
		if !json.Valid(data) {
			t.Fatalf("accepted invalid JSON: %q", data)
		}
		out, err := Marshal(info)
		if err != nil {
			// Indentation can push a source over the limit.
			if strings.Contains(err.Error(), "must have at most 262144 bytes") {
				return
			}
			t.Fatalf("%q cannot be written: %v", data, err)
		}
		again, err := Parse(out, "f")
		if err != nil {
			t.Fatalf("%q written as %q: %v", data, out, err)
		}
		if diff := cmp.Diff(info, again, ignoreWarnings); diff != "" {
			t.Fatalf("%q -before +after:\n%s", data, diff)
		}
	})
}

func FuzzMatchCNIFileName(f *testing.F) {
	f.Add("admin", "srv", "e061661af3732d3722604b84a196956ad759f02ae00cda41a639ff6aff85a276", "net1")
	f.Add("a-b", "c.d", "ab_cd-ef", "net_1-ab_2")
	f.Add("a-ab_x", "b", "ab", "x")
	f.Add("a", "b", "-", "_")
	f.Add("a/b", "c/d", "_", "net1")
	f.Fuzz(func(t *testing.T, namespace, nad, sandboxID, ifName string) {
		network, i, ok := name.MatchInfoFile(namespace, sandboxID) // any name, any ID
		if ok && network+"-"+sandboxID+"_"+i != namespace {
			t.Fatalf("%q split as %q, %q", namespace, network, i)
		}
		file, err := CNIFileName(namespace, nad, sandboxID, ifName)
		if err != nil {
			return
		}
		if name.CheckFile(file) != nil {
			t.Fatalf("unsafe name %q", file)
		}
		network, i, ok = name.MatchInfoFile(file, sandboxID)
		if want := strings.ReplaceAll(namespace+"-"+nad, "/", "-"); !ok || network != want || i != ifName {
			t.Fatalf("%q split as %q, %q, %v", file, network, i, ok)
		}
		if name.IsHexSandboxID(sandboxID) {
			if n, id, i := name.SplitInfoFile(file); n != network || id != sandboxID || i != ifName {
				t.Fatalf("%q split as %q, %q, %q", file, n, id, i)
			}
		}
	})
}

// CapabilityPath returns a path, or none, or an error.
func FuzzCapability(f *testing.F) {
	for _, conf := range []string{
		`{"type":"a","capabilities":{"CNIDeviceInfoFile":true,"mac":true},"runtimeConfig":{"mac":"x","CNIDeviceInfoFile":"/a"},"a":1.0e+2,"é":"\u00e9"}`,
		`{"RuntimeConfig":{"CNIDeviceInfoFile":"/b"},"runtimeconfig":{"CNIDeviceInfoFile":"/c"}}`,
		`{"runtimeConfig":{"CNIDeviceInfoFile":""}}`, `{"runtimeConfig":null}`, `null`, `[]`,
	} {
		f.Add([]byte(conf))
	}
	f.Fuzz(func(t *testing.T, conf []byte) {
		path, ok, err := CapabilityPath(conf)
		if err != nil && (ok || path != "" || !errdefs.IsInvalidArgument(err)) || ok == (path == "") && err == nil {
			t.Errorf("%.500q: %q, %v, %v", conf, path, ok, err)
		}
	})
}
