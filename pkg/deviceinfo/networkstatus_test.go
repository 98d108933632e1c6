// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jackfield/jackfield/internal/base/testkit"
)

func TestNetworkStatusKeepsTheOtherKeys(t *testing.T) {
	src := `[{"name":"ns/a","interface":"eth0","ips":["192.0.2.2/24"],"default":true,"dns":{}},
		{"name":"ns/b","device-info":` + infoText("pci", pciMap) + `,"mtu":1500.0,"Name2":"é"}]`
	list, err := ParseNetworkStatus([]byte(src), "f")
	testkit.Must(t, err)
	if len(list) != 2 || list[0].Name != "ns/a" || list[0].Interface != "eth0" || list[0].DeviceInfo != nil || list[1].DeviceInfo.PCI == nil {
		t.Fatalf("%+v", list)
	}
	out, err := json.Marshal(list)
	testkit.Must(t, err)
	var want, got any
	testkit.Must(t, json.Unmarshal([]byte(src), &want))
	testkit.Must(t, json.Unmarshal(out, &got))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	var again []NetworkStatus
	testkit.Must(t, json.Unmarshal(out, &again))
	if diff := cmp.Diff(list, again); diff != "" {
		t.Errorf("encoding/json: -want +got:\n%s", diff)
	}
}

func TestNetworkStatusCollects(t *testing.T) {
	root, dir := newTestNode(t)
	writeFile(t, dir, "n-x_net1", infoText("pci", pciMap+`,"later":1`))
	info, err := CNIDir{Root: root}.Read("n-x_net1")
	testkit.Must(t, err)
	s := NetworkStatus{Name: "ns/nad", Interface: "net1", Extra: map[string]json.RawMessage{"mac": json.RawMessage(`"02:11:22:33:44:54"`)}}
	for want, deviceInfo := range map[string]*Info{
		`{"name":"ns/nad","interface":"net1","mac":"02:11:22:33:44:54"}`:                                                                                               nil, // no file exists
		`{"name":"ns/nad","interface":"net1","device-info":{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:01:02.2","later":1}},"mac":"02:11:22:33:44:54"}`: info,
	} {
		s.DeviceInfo = deviceInfo
		if out, err := json.Marshal(s); err != nil || string(out) != want {
			t.Errorf("got %s, %v, want %s", out, err, want)
		}
	}
}

func TestNetworkStatusFollowsTheFormat(t *testing.T) {
	for src, key := range map[string]string{
		`[{"name":"a","device-info":{"type":"pci","version":"1.1.0"}}]`: "[0].device-info.pci",
		`[{"name":"a"},{"name":"b","device-info":null}]`:                "[1].device-info",
		`[{"name":"a","Device-Info":` + infoText("pci", pciMap) + `}]`:  "[0].Device-Info",
		`[{"name":5}]`:                      "[0].name",
		`["a"]`:                             "[0]",
		`{}`:                                "",
		`[{"name":"a","name":"b"}]`:         "[0].name",
		`[{"name":"a"}`:                     "",
		strings.Repeat(" ", 256<<10) + `[]`: "",
	} {
		_, err := ParseNetworkStatus([]byte(src), "annotation")
		if err == nil {
			t.Errorf("%.80s accepted", src)
			continue
		}
		if ds := diagnosticsOf(t, err); ds[0].Field != key || ds[0].File != "annotation" {
			t.Errorf("%.80s: %v, want a diagnostic about %q", src, err, key)
		}
	}
	for _, s := range []NetworkStatus{
		{DeviceInfo: &Info{}},
		{Extra: map[string]json.RawMessage{"name": json.RawMessage(`"b"`)}},
		{Extra: map[string]json.RawMessage{"x": json.RawMessage(`{`)}},
		{Extra: map[string]json.RawMessage{"device-info": json.RawMessage(`1`)}},
	} {
		if out, err := json.Marshal(s); err == nil {
			t.Errorf("%+v was written as %s", s, out)
		}
	}
}
