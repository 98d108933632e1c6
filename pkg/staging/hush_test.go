// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"testing"
	"time"
)

func TestATenantFillsNoLog(t *testing.T) {
	at := time.Unix(1000, 0)
	h := hush{tenant: true}
	told := 0
	for i := range 10_000 { // a second of it
		if quiet, _ := h.next(at.Add(time.Duration(i)*100*time.Microsecond), true); !quiet {
			told++
		}
	}
	if told != 1 {
		t.Errorf("%d of 10,000 failures were told, want 1", told)
	}
	if quiet, more := h.next(at.Add(tenantHush+time.Second), true); quiet || more != 9_999 {
		t.Errorf("later: quiet %t, %d not told, want 9,999", quiet, more)
	}
	host := hush{}
	for range 3 {
		if quiet, more := host.next(at, true); quiet || more != 0 {
			t.Error("what the host's own sockets do is told each time")
		}
	}
}
