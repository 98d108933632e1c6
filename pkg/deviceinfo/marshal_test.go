// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/jackfield/jackfield/internal/base/testkit"
)

var ignoreWarnings = cmpopts.IgnoreFields(Info{}, "Warnings")

// randomInfo returns a random valid Info.
func randomInfo(r *rand.Rand) *Info {
	pick := func(s ...string) string { return s[r.IntN(len(s))] }
	maybe := func(s string) string {
		if r.IntN(2) == 0 {
			return ""
		}
		return s
	}
	bdf := func() string {
		return fmt.Sprintf("%04x:%02x:%02x.%x", r.IntN(1<<16), r.IntN(1<<8), r.IntN(32), r.IntN(8))
	}
	name := func() string {
		return pick("eth", "é", `"`, `\`, "😀", "<&>", "“") + pick("0", "1", "-", "_", "x")
	}
	path := func() string { return "/" + name() + "/" + name() }
	extra := func() map[string]json.RawMessage {
		if r.IntN(2) == 0 {
			return nil
		}
		return map[string]json.RawMessage{
			pick("x-a", "", "ключ", "a\nb", `"q"`): json.RawMessage(pick(`1`, `"é\u0000"`, `[1,{"a":null}]`, `1e400`, `{"Type":{"type":1}}`)),
			"later": json.RawMessage(`{}`),
		}
	}
	info := &Info{Type: Type(pick("pci", "vdpa", "vhost-user", "memif")), Version: pick(version100, Version, "1.7.3"), Extra: extra()}
	if info.Type == TypePCI || r.IntN(4) == 0 {
		info.PCI = &PCI{PCIAddress: bdf(), VhostNet: maybe(path()), RDMADevice: maybe("mlx5_0," + name()), PFPCIAddress: maybe(bdf()),
			RepresentorDevice: maybe(name()), Extra: extra()}
	}
	if info.Type == TypeVDPA || r.IntN(4) == 0 {
		info.VDPA = &VDPA{ParentDevice: name(), Driver: VDPAVirtio, Path: maybe(path()), PCIAddress: maybe(bdf()), PFPCIAddress: maybe(bdf()),
			RepresentorDevice: maybe(name()), Extra: extra()}
		if info.VDPA.Path != "" {
			info.VDPA.Driver = VDPADriver(pick("vhost", "virtio"))
		}
	}
	if info.Type == TypeVhostUser || r.IntN(4) == 0 {
		info.VhostUser = &VhostUser{Mode: VhostUserMode(pick("client", "server")), Path: path(), Extra: extra()}
	}
	if info.Type == TypeMemif || r.IntN(4) == 0 {
		info.Memif = &Memif{Role: MemifRole(pick("master", "slave")), Path: pick("@"+name(), path()),
			Mode: MemifMode(pick("ethernet", "ip", "inject-punt")), Extra: extra()}
	}
	return info
}

func TestParseReturnsMarshalledInfo(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		info := randomInfo(r)
		data, err := Marshal(info)
		if err != nil {
			t.Fatalf("%+v: %v", info, err)
		}
		got, err := Parse(data, "f")
		if err != nil {
			t.Fatalf("%s\n%v", data, err)
		}
		if diff := cmp.Diff(info, got, ignoreWarnings); diff != "" {
			t.Fatalf("%s\n-want +got:\n%s", data, diff)
		}
		again, err := Marshal(got)
		if err != nil || string(again) != string(data) {
			t.Fatalf("different bytes when marshalled again: %v\n%s\n%s", err, data, again)
		}
		compact, err := json.Marshal(info)
		testkit.Must(t, err)
		var back *Info
		testkit.Must(t, json.Unmarshal(compact, &back))
		if diff := cmp.Diff(info, back, ignoreWarnings); diff != "" {
			t.Fatalf("encoding/json: -want +got:\n%s", diff)
		}
	}
}

func TestMarshalRefusesWhatParseRefuses(t *testing.T) {
	ok := func() *Info {
		return &Info{Type: TypePCI, Version: Version, PCI: &PCI{PCIAddress: "0000:01:02.2"}}
	}
	testkit.Must(t, ok().Validate())
	for name, c := range map[string]struct {
		change func(*Info)
		key    string
	}{
		"empty":          {func(i *Info) { *i = Info{} }, "type"},
		"type":           {func(i *Info) { i.Type = "x" }, "type"},
		"map missing":    {func(i *Info) { i.PCI = nil }, "pci"},
		"version":        {func(i *Info) { i.Version = "" }, "version"},
		"address":        {func(i *Info) { i.PCI.PCIAddress = "x" }, "pci.pci-address"},
		"not UTF-8":      {func(i *Info) { i.PCI.RDMADevice = "a\xff" }, ""},
		"other map":      {func(i *Info) { i.Memif = &Memif{} }, "memif.role"},
		"extra known":    {func(i *Info) { i.Extra = map[string]json.RawMessage{"pci": json.RawMessage("{}")} }, "pci"},
		"extra case":     {func(i *Info) { i.PCI.Extra = map[string]json.RawMessage{"PCI-address": json.RawMessage("1")} }, "pci.PCI-address"},
		"extra not JSON": {func(i *Info) { i.Extra = map[string]json.RawMessage{"x": json.RawMessage("1,")} }, ""},
		"extra empty":    {func(i *Info) { i.Extra = map[string]json.RawMessage{"x": nil} }, ""},
		"extra closes":   {func(i *Info) { i.Extra = map[string]json.RawMessage{"x": json.RawMessage(`1},"y":{`)} }, ""},
		"extra injects": {func(i *Info) {
			i.PCI.Extra = map[string]json.RawMessage{"x": json.RawMessage(`1,"pci-address":"0000:00:00.0"`)}
		}, "pci.pci-address"},
		"extra large": {func(i *Info) {
			i.Extra = map[string]json.RawMessage{"x": json.RawMessage(`"` + strings.Repeat("a", MaxSize) + `"`)}
		}, ""},
		"large by the room": {func(i *Info) {
			i.Extra = map[string]json.RawMessage{"x": json.RawMessage(`[` + strings.Repeat("1,", MaxSize/4) + `1]`)}
		}, ""},
	} {
		i := ok()
		c.change(i)
		_, err := Marshal(i)
		var ds FieldErrors
		if !errors.As(err, &ds) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if ds[0].Field != c.key && c.key != "" || ds[0].Line != 0 {
			t.Errorf("%s: %v, want a diagnostic about %q without a position", name, ds, c.key)
		}
	}
	if _, err := Marshal(nil); len(diagnosticsOf(t, err)) != 1 {
		t.Errorf("nil: %v", err)
	}
}

func TestMarshalIsCanonical(t *testing.T) {
	data, err := Marshal(&Info{Type: TypePCI, Version: Version, PCI: &PCI{PCIAddress: "00AB:CD:1F.7"},
		Extra: map[string]json.RawMessage{"z": json.RawMessage(" [ 1 ,2 ] "), "a": json.RawMessage(`"<é>"`)}})
	testkit.Must(t, err)
	const want = `{
    "type": "pci",
    "version": "1.1.0",
    "pci": {
        "pci-address": "00ab:cd:1f.7"
    },
    "a": "<é>",
    "z": [
        1,
        2
    ]
}
`
	if diff := cmp.Diff(want, string(data)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestAppendJSONIsMarshalJSON(t *testing.T) {
	for _, text := range []string{
		`{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:03:00.3","rdma-device":"mlx5_4","x":[1,"é"]},"y":null}`,
		`{"type":"memif","version":"1.0.0","memif":{"role":"slave","mode":"ip","path":"@a"}}`,
	} {
		i, err := Parse([]byte(text), "")
		testkit.Must(t, err)
		want, err := i.MarshalJSON()
		testkit.Must(t, err)
		if got := string(i.AppendJSON([]byte("x"))); got != "x"+string(want) {
			t.Errorf("got %s, want x%s", got, want)
		}
	}
}
