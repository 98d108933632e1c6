// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"slices"
	"testing"
)

// Whether the OCI runtime takes a network device is not known here: each delivery of one
// says so, and no other request does.
func TestNetDeviceHasANote(t *testing.T) {
	h := newHost(t, "enforce")
	h.use(wide, nil)
	h.write("/etc/cdi/nd.json", `{"cdiVersion":"1.1.0","kind":"vendor.com/nd","devices":[
  {"name":"a","containerEdits":{"netDevices":[{"hostInterfaceName":"eth7","name":"fast0"}]}}]}`)
	plan := h.resolve(ask("vendor.com/nd=a,vendor.com/net=a"))
	for i, want := range []bool{true, false} {
		if got := slices.Contains(plan.Items[i].Notes, noteNetDevices); got != want {
			t.Errorf("%s: notes %q", plan.Items[i].Request, plan.Items[i].Notes)
		}
	}
}
