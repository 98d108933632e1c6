// SPDX-License-Identifier: Apache-2.0

package attachment

import "testing"

// Nothing returns true only if Find finds nothing.
func TestNothing(t *testing.T) {
	n := newNode(t)
	f := n.newFinder()
	for _, tc := range []struct {
		id, networks string
		env          []string
		want         bool
	}{
		{id: sandbox, env: []string{"PATH=/bin"}, want: true},
		{id: "", want: true},
		{id: sandbox, networks: "bridge"},
		{id: sandbox, env: []string{"PATH=/bin", "PCIDEVICE_A=" + devA}},
		{id: "a/b"},
	} {
		if got := f.Nothing(tc.id, tc.networks, tc.env, false); got != tc.want {
			t.Errorf("%+v: got %v", tc, got)
		}
	}
	n.writeCNIFile("ns/net", "net1", vhostInfo)
	if f.Nothing(sandbox, "", nil, false) {
		t.Error("Nothing is true although the sandbox has a file")
	}
	if !f.Nothing("another", "", nil, false) {
		t.Error("Nothing is false because of the file of another sandbox")
	}
}

// Warm changes no result and reports no error.
func TestWarm(t *testing.T) {
	n := newNode(t)
	k := n.allocate("c1: intel.com/vf=" + devA)
	n.writeCNIFile("ns/net", "net1", pciInfo(devA))
	n.writeCNIFile("ns/bad", "net2", "nonsense")
	f := n.newFinder()
	for _, q := range []Query{newQuery(), {SandboxID: "a/b"}, {}} {
		f.Warm(q)
	}
	if k.countCalls() != 0 {
		t.Errorf("Warm called the kubelet %d times", k.countCalls())
	}
	as, err := f.findNetworks(t.Context(), newQuery())
	check(t, err)
	if findByIfName(t, as, "net1").Owner != OwnedHere || findByIfName(t, as, "net2").Err == nil {
		t.Errorf("got %+v", as)
	}
}
