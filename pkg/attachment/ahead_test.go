// SPDX-License-Identifier: Apache-2.0

package attachment

import "testing"

// Nothing is true only where Find finds nothing.
func TestNothing(t *testing.T) {
	n := newNode(t)
	f := n.finder()
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
		if got := f.Nothing(tc.id, tc.networks, tc.env); got != tc.want {
			t.Errorf("%+v gives %v", tc, got)
		}
	}
	n.cni("ns/net", "net1", vhostInfo)
	if f.Nothing(sandbox, "", nil) {
		t.Error("there is a file")
	}
	if !f.Nothing("another", "", nil) {
		t.Error("the file is another sandbox's")
	}
}

// What is done ahead changes no answer, and goes wrong in silence.
func TestWarm(t *testing.T) {
	n := newNode(t)
	k := n.gives("c1: intel.com/vf=" + devA)
	n.cni("ns/net", "net1", pciInfo(devA))
	n.cni("ns/bad", "net2", "nonsense")
	f := n.finder()
	for _, q := range []Query{query(), {SandboxID: "a/b"}, {}} {
		f.Warm(q)
	}
	if k.times() != 0 {
		t.Errorf("the kubelet was waited for, %d times", k.times())
	}
	as, err := f.Sandbox(t.Context(), query())
	check(t, err)
	if byIfName(t, as, "net1").Owner != OwnedHere || byIfName(t, as, "net2").Err == nil {
		t.Errorf("found %+v", as)
	}
}
