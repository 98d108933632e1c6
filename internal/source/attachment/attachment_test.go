// SPDX-License-Identifier: Apache-2.0

package attachment

import "testing"

// FindsNothing returns true only if Find finds nothing.
func TestFindsNothingAgreesWithFind(t *testing.T) {
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
		if got := f.FindsNothing(Query{SandboxID: tc.id, Networks: tc.networks, Env: tc.env}); got != tc.want {
			t.Errorf("%+v: got %v", tc, got)
		}
	}
	n.writeCNIFile("ns/net", "net1", vhostInfo)
	if f.FindsNothing(Query{SandboxID: sandbox}) {
		t.Error("FindsNothing is true although the sandbox has a file")
	}
	if !f.FindsNothing(Query{SandboxID: "another"}) {
		t.Error("FindsNothing is false because of the file of another sandbox")
	}
}
