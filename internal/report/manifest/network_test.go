// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jackfield/jackfield/internal/config/policy"
)

// plugin is a valid configuration of jackfield-cni with more keys.
func plugin(keys string) string {
	return `{"cniVersion": "1.0.0", "type": "jackfield-cni", "device": {"type": "vhost-user", "mode": "server"}` + keys + `}`
}

func TestNetworksHaveThePortsOfThePlugin(t *testing.T) {
	objects, err := Parse("nets.yaml", []byte(`
kind: NetworkAttachmentDefinition
metadata: {name: one, namespace: a}
spec: {config: '`+plugin(`, "vswitch": "ovs0", "bridge": "br0", "vlan": 7`)+`'}
---
kind: List
items:
  - kind: NetworkAttachmentDefinition
    metadata: {name: chain}
    spec: {config: '{"cniVersion": "1.0.0", "name": "c", "plugins": [{"type": "bridge", "vswitch": "ovs0"}, `+plugin(`, "vswitch": "vpp0"`)+`]}'}
  - {kind: NetworkAttachmentDefinition, metadata: {name: in-a-file}}
  - {kind: NetworkAttachmentDefinition, metadata: {name: another}, spec: {config: '{"type": "bridge", "brigde": 1}'}}
---
kind: Deployment
spec: {config: 7, template: {spec: {containers: [{name: c}]}}}
`), "default")
	want := map[string]Network{
		"a/one":         {Plugins: 1, Ports: []policy.Port{{Switch: "ovs0", Bridge: "br0", VLAN: 7}}},
		"default/chain": {Plugins: 1, Ports: []policy.Port{{Switch: "vpp0"}}},
	}
	if d := cmp.Diff(want, objects.Networks); d != "" || err != nil {
		t.Errorf("%v, -want +got\n%s", err, d)
	}
}

// The fault of a network is that of jackfield-cni's parser, and the other objects of the file are read.
func TestFaultyNetworkKeepsOtherObjects(t *testing.T) {
	for config, want := range map[string]string{
		`{"vlan": }`:                                       `spec.config: failed to decode the network configuration; line 1, column 10: `,
		plugin(`, "brigde": "x"`):                          `did you mean bridge?`,
		plugin(`, "vlan": 4095`):                           `vlan`,
		`{"type":"jackfield-cni"}`:                         `incompatible CNI versions`,
		`{"cniVersion": "1.0.0", "type": "jackfield-cni"}`: `device`,
		`7`: `must be an object`,
	} {
		objects, err := Parse("nets.yaml", []byte(`
{kind: NetworkAttachmentDefinition, metadata: {name: x}, spec: {config: '`+config+`'}}
---
{kind: Pod, metadata: {name: p}, spec: {containers: [{name: c}]}}
`), "default")
		if got := objects.Networks["default/x"].Err; err != nil || len(objects.Pods) != 1 || got == nil || !strings.Contains(got.Error(), want) {
			t.Errorf("%s: %v, %d pods, fault %v; must have the fault %q", config, err, len(objects.Pods), got, want)
		}
	}
	objects, err := Parse("nets.yaml", []byte(`{kind: NetworkAttachmentDefinition, metadata: {name: x}, spec: {config: {a: 1}}}`), "default")
	if got := objects.Networks["default/x"].Err; !isNoPods(err) || got == nil || !strings.Contains(got.Error(), "Spec.Config: must be a string") && !strings.Contains(got.Error(), "spec.config: must be a string") {
		t.Errorf("%v, fault %v", err, got)
	}
}

func FuzzNetworks(f *testing.F) {
	f.Add([]byte(`{kind: NetworkAttachmentDefinition, spec: {config: '{"type": "jackfield-cni", "vswitch": "ovs0"}'}}`))
	f.Add([]byte(`{kind: List, items: [{kind: NetworkAttachmentDefinition, spec: {config: '{"plugins": [null]}'}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		objects, err := Parse("f", data, "")
		for name, n := range objects.Networks {
			if err != nil && !isNoPods(err) || n.Plugins == 0 && n.Err == nil {
				t.Errorf("%s: %+v, %v", name, n, err)
			}
		}
	})
}
