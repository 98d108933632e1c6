// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jackfield/jackfield/internal/config/policy"
)

func TestVswitchesHaveDefaultsOfTheirType(t *testing.T) {
	c, err := Parse([]byte(`
vswitches:
  - {name: ovs0, type: ovs}
  - {name: grout0, type: grout}
  - {name: vpp0, type: vpp, uplink: TenGigabitEthernet3/0/0}
  - name: ovs1
    type: ovs
    endpoint: /srv/ovs/db.sock
    bridges: [br-dpdk0, "7"]
    defaults: {bridge: br-dpdk0, mtu: 9000, queues: 4}
    socketDir: /srv/ovs
  - {name: grout1, type: grout, endpoint: /srv/grout.sock, grcli: /opt/bin/grcli}
`), "c.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := []Vswitch{
		{Name: "ovs0", Type: VswitchOVS, Endpoint: "/run/openvswitch/db.sock"},
		{Name: "grout0", Type: VswitchGrout, Endpoint: "/run/grout.sock", Grcli: "/usr/bin/grcli"},
		{Name: "vpp0", Type: VswitchVPP, Endpoint: "/run/vpp/api.sock", Uplink: "TenGigabitEthernet3/0/0"},
		{Name: "ovs1", Type: VswitchOVS, Endpoint: "/srv/ovs/db.sock", Bridges: []string{"br-dpdk0", "7"},
			Defaults: VswitchDefaults{Bridge: "br-dpdk0", MTU: 9000, Queues: 4}, SocketDir: "/srv/ovs"},
		{Name: "grout1", Type: VswitchGrout, Endpoint: "/srv/grout.sock", Grcli: "/opt/bin/grcli"},
	}
	if d := cmp.Diff(want, c.Vswitches); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	if v, ok := c.Vswitch("vpp0"); !ok || v.Type != VswitchVPP {
		t.Errorf("vpp0: %+v, %t", v, ok)
	}
	if v, ok := c.Vswitch("vpp1"); ok {
		t.Errorf("vpp1: %+v", v)
	}
	if c, err := Parse([]byte("vswitches: []"), "c.yaml"); err != nil || c.Vswitches != nil {
		t.Errorf("an empty list: %v, %v", c, err)
	}
}

func TestVswitchFaultsHaveTheirPlace(t *testing.T) {
	name := `must be 1 to 63 letters, digits, '.', '_', '-', not all of them punctuation`
	uplink := `must be the name of an interface of VPP: 1 to 63 letters, digits, '/', '_', ':', '-'`
	for text, want := range map[string]string{
		"{type: ovs}":                                    `c.yaml:2:5: vswitches[0].name: found nothing: a vswitch has a name and a type`,
		"{name: a}":                                      `c.yaml:2:5: vswitches[0].type: found nothing: a vswitch has a name and a type`,
		"{name: a/b, type: ovs}":                         `c.yaml:2:12: vswitches[0].name: invalid value "a/b": ` + name,
		`{name: "..", type: ovs}`:                        `c.yaml:2:12: vswitches[0].name: invalid value "..": ` + name,
		`{name: "*", type: ovs}`:                         `c.yaml:2:12: vswitches[0].name: invalid value "*": ` + name,
		"{name: a, type: vp}":                            `c.yaml:2:21: vswitches[0].type: invalid value "vp": must be one of ovs, grout, vpp; did you mean vpp?`,
		"{name: a, type: dpdk}":                          `c.yaml:2:21: vswitches[0].type: invalid value "dpdk": must be one of ovs, grout, vpp`,
		"{name: a, typ: ovs}":                            `c.yaml:2:15: vswitches[0]: unknown key "typ"; the keys here are name, type, endpoint, bridges, defaults, grcli, uplink, socketDir; did you mean type?`,
		"{name: a, type: ovs}\n  - {name: a, type: vpp}": `c.yaml:3:12: vswitches[1].name: found "a": vswitches[0] has this name already`,
		"{name: a, type: ovs, endpoint: db.sock}":        `c.yaml:2:36: vswitches[0].endpoint: invalid value "db.sock": must be an absolute path`,
		"{name: a, type: ovs, endpoint: /" + strings.Repeat("x", 107) + "}": `vswitches[0].endpoint: found "/` + strings.Repeat("x", 107) + `": a socket's path has at most 107 bytes`,
		"{name: a, type: ovs, bridges: [br/0]}":                             `c.yaml:2:36: vswitches[0].bridges[0]: invalid value "br/0": ` + name,
		"{name: a, type: ovs, bridges: [br0, br0]}":                         `c.yaml:2:41: vswitches[0].bridges[1]: found "br0": it is already in the list, in line 2`,
		"{name: a, type: vpp, bridges: [7]}":                                `c.yaml:2:36: vswitches[0].bridges[0]: invalid value 7, which YAML reads as a number: must be a string; put it in quotes`,
		"{name: a, type: ovs, bridges: [br0], defaults: {bridge: br1}}":     `c.yaml:2:61: vswitches[0].defaults.bridge: invalid value "br1": must be one of bridges; did you mean br0?`,
		"{name: a, type: ovs, defaults: {mtu: 67}}":                         `c.yaml:2:42: vswitches[0].defaults.mtu: invalid value 67, which YAML reads as a number: must be a whole number from 68 to 65535`,
		"{name: a, type: ovs, defaults: {queues: 0}}":                       `c.yaml:2:45: vswitches[0].defaults.queues: invalid value 0, which YAML reads as a number: must be a whole number from 1 to 256`,
		"{name: a, type: ovs, grcli: /usr/bin/grcli}":                       `c.yaml:2:33: vswitches[0].grcli: found "/usr/bin/grcli": only a vswitch of type grout has it`,
		"{name: a, type: ovs, uplink: eth0}":                                `c.yaml:2:34: vswitches[0].uplink: found "eth0": only a vswitch of type vpp has it`,
		"{name: a, type: vpp, uplink: eth0.100}":                            `c.yaml:2:34: vswitches[0].uplink: invalid value "eth0.100": ` + uplink,
		`{name: a, type: vpp, uplink: ""}`:                                  `c.yaml:2:34: vswitches[0].uplink: invalid value "": ` + uplink,
		"{name: a, type: vpp, socketDir: /run/vpp}":                         `c.yaml:2:37: vswitches[0].socketDir: found "/run/vpp": only a vswitch of type ovs has it`,
	} {
		_, err := Parse([]byte("vswitches:\n  - "+text+"\n"), "c.yaml")
		if err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: got\n%v\nwant\n%s", text, err, want)
		}
	}
}

func TestPortRulesArePatternsOrObjects(t *testing.T) {
	rule := func(ports string) string {
		return "policy: {rules: [{name: a, for: {namespaces: [b]}, allow: {ports: [" + ports + "]}}]}"
	}
	c, err := Parse([]byte(rule(`ovs0/br0, {port: "*/br-*", vlans: ["100-199", 300, 7-8]}, {port: a/b}`)), "c.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := []policy.PortPattern{{Port: "ovs0/br0"}, {Port: "*/br-*", VLANs: []string{"100-199", "300", "7-8"}}, {Port: "a/b"}}
	if d := cmp.Diff(want, c.Policy.Rules[0].Allow.Ports); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	for ports, want := range map[string]string{
		`{vlans: [1]}`:            `policy.rules[0].allow.ports[0].port: found nothing: an object has port, a pattern of vswitch/bridge`,
		`{port: a/b, vlan: 1}`:    `policy.rules[0].allow.ports[0]: unknown key "vlan"; the keys here are port, vlans; did you mean vlans?`,
		`{port: a/b, vlans: 1}`:   `policy.rules[0].allow.ports[0].vlans: invalid value 1, which YAML reads as a number: must be a list`,
		`{port: a/b, vlans: []}`:  `policy.rules[0].allow.ports[0].vlans: found an empty list: give at least one, or leave the key out`,
		`{port: a/b, vlans: [~]}`: `policy.rules[0].allow.ports[0].vlans[0]: found nothing: must be a string`,
		`7`:                       `policy.rules[0].allow.ports[0]: invalid value 7, which YAML reads as a number: must be a string; put it in quotes`,
		`[a/b]`:                   `policy.rules[0].allow.ports[0]: found a list: must be a string`,
	} {
		if _, err := Parse([]byte(rule(ports)), "c.yaml"); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: got\n%v\nwant\n%s", ports, err, want)
		}
	}
}
