// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"testing"

	"github.com/containerd/errdefs"
)

// The engine does not know whether the OCI runtime supports network devices and RDT. Each delivered one has a note about
// that; other requests have none.
func TestFieldsOfNewerOCIRuntimesHaveNotes(t *testing.T) {
	h := newHost(t, "enforce")
	h.replaceRules(allowAll, nil)
	h.write("/etc/cdi/nd.json", `{"cdiVersion":"1.1.0","kind":"vendor.com/nd","devices":[
  {"name":"a","containerEdits":{"netDevices":[{"hostInterfaceName":"eth7","name":"fast0"}]}},
  {"name":"rdt","containerEdits":{"intelRdt":{"closID":"gold"}}}]}`)
	plan := h.resolve(newRequest("vendor.com/nd=a,vendor.com/nd=rdt,vendor.com/net=a"))
	for i, want := range [][]string{{noteNetDevices}, {noteRDT}, nil} {
		if got := plan.Items[i].Notes; !slices.Equal(got, want) {
			t.Errorf("%s: notes %q", plan.Items[i].Request, got)
		}
	}
}

// The OCI runtime would fail on a missing interface without a reason.
func TestMissingInterfaceIsRefusedWithItsReason(t *testing.T) {
	for name, c := range map[string]struct {
		interfaces []string
		words      []string // of the refusal; nil for none
	}{
		"present":            {[]string{"lo", "eth7"}, nil},
		"not visible":        {nil, nil},
		"never there":        {[]string{"lo"}, []string{`network device "eth7"`, "no such interface", "delete that pod"}},
		"renamed by its pod": {[]string{"lo", "fast0"}, []string{`network device "eth7"`, "the node's administrator can run `ip link set fast0 name eth7`"}},
	} {
		h := newHost(t, "enforce")
		h.replaceRules(allowAll, nil)
		for _, i := range c.interfaces {
			h.write("/sys/class/net/"+i+"/ifindex", "1\n")
		}
		h.write("/etc/cdi/nd.json", `{"cdiVersion":"1.1.0","kind":"vendor.com/nd","devices":[
  {"name":"a","containerEdits":{"netDevices":[{"hostInterfaceName":"eth7","name":"fast0"}]}}]}`)
		r := newRequest("vendor.com/nd=a")
		if c.words != nil {
			h.wantRefusal(r, errdefs.IsNotFound, c.words...)
		} else if p := h.resolve(r); len(p.Set.NetDevices) != 1 {
			t.Errorf("%s: %+v", name, p.Items)
		}
	}
}
