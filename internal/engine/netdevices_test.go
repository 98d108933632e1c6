// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"testing"
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
