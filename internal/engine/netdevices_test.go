// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"testing"
)

// The engine does not know whether the OCI runtime supports network devices. Each delivered one has a note about
// that; other requests have none.
func TestNetDeviceHasNote(t *testing.T) {
	h := newHost(t, "enforce")
	h.replaceRules(allowAll, nil)
	h.write("/etc/cdi/nd.json", `{"cdiVersion":"1.1.0","kind":"vendor.com/nd","devices":[
  {"name":"a","containerEdits":{"netDevices":[{"hostInterfaceName":"eth7","name":"fast0"}]}}]}`)
	plan := h.resolve(newRequest("vendor.com/nd=a,vendor.com/net=a"))
	for i, want := range []bool{true, false} {
		if got := slices.Contains(plan.Items[i].Notes, noteNetDevices); got != want {
			t.Errorf("%s: notes %q", plan.Items[i].Request, plan.Items[i].Notes)
		}
	}
}
