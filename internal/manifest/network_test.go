// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jackfield/jackfield/pkg/policy"
)

func TestNetworksHaveThePortsOfThePlugin(t *testing.T) {
	objects, err := Parse("nets.yaml", []byte(`
kind: NetworkAttachmentDefinition
metadata: {name: one, namespace: a}
spec: {config: '{"type": "jackfield-cni", "vswitch": "ovs0", "bridge": "br0", "vlan": 7}'}
---
kind: List
items:
  - kind: NetworkAttachmentDefinition
    metadata: {name: chain}
    spec: {config: '{"plugins": [{"type": "bridge", "vswitch": "ovs0"}, {"type": "jackfield-cni", "vswitch": "vpp0"}]}'}
  - {kind: NetworkAttachmentDefinition, metadata: {name: in-a-file}}
---
kind: Deployment
spec: {config: 7, template: {spec: {containers: [{name: c}]}}}
`), "default")
	want := map[string][]policy.Port{
		"a/one":         {{Switch: "ovs0", Bridge: "br0", VLAN: 7}},
		"default/chain": {{Switch: "vpp0"}},
	}
	if d := cmp.Diff(want, objects.Networks); d != "" || err != nil {
		t.Errorf("%v, -want +got\n%s", err, d)
	}
}

func TestErrorNamesTheFaultyNetwork(t *testing.T) {
	_, err := Parse("nets.yaml", []byte(`{kind: NetworkAttachmentDefinition, metadata: {name: x}, spec: {config: '{"vlan": "7"}'}}`), "")
	if err == nil || !strings.Contains(err.Error(), `read manifest "nets.yaml": NetworkAttachmentDefinition "x": spec.config: `) {
		t.Error(err)
	}
}

func FuzzNetworks(f *testing.F) {
	f.Add([]byte(`{kind: NetworkAttachmentDefinition, spec: {config: '{"type": "jackfield-cni", "vswitch": "ovs0"}'}}`))
	f.Add([]byte(`{kind: List, items: [{kind: NetworkAttachmentDefinition, spec: {config: '{"plugins": [null]}'}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		objects, err := Parse("f", data, "")
		for name, ports := range objects.Networks {
			if err != nil && !isNoPods(err) || len(ports) == 0 {
				t.Errorf("%s: %+v, %v", name, ports, err)
			}
		}
	})
}
