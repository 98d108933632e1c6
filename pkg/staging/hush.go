// SPDX-License-Identifier: Apache-2.0

package staging

import "time"

// tenantHush is how long nothing is told of a socket that a tenant can make, after
// something was: it could fill the node's log with it.
const tenantHush = 5 * time.Second

// hush says what is told of a socket.
type hush struct {
	tenant bool // some tenant can make it
	until  time.Time
	kept   int // failures that were not told since
}

// next takes note of something to tell, and says whether to keep quiet about it; of a
// failure that is told, how many were not before it.
func (h *hush) next(now time.Time, failed bool) (quiet bool, more int) {
	if h.tenant && now.Before(h.until) {
		if failed {
			h.kept++
		}
		return true, 0
	}
	h.until = now.Add(tenantHush)
	if failed {
		more, h.kept = h.kept, 0
	}
	return false, more
}
