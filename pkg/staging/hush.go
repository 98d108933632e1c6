// SPDX-License-Identifier: Apache-2.0

package staging

import "time"

const (
	// hushPeriod is the time in which a source of log lines has a limited number of them: it could fill the node's log.
	hushPeriod = 5 * time.Second
	// hostLines and tenantLines are these numbers: of what only the host can cause, and of what a tenant can.
	hostLines, tenantLines = 16, 1
)

// hush limits the log lines of one source, such as a socket.
type hush struct {
	until time.Time // the end of the period
	told  int       // lines in it
	kept  int       // failures that were not reported since the last that was
}

// next counts a line, and says whether to keep quiet about it; for a failure that is reported, also how many were not before it. Whether a tenant can
// cause it is decided for each line: a directory can come to belong to a tenant later.
func (h *hush) next(now time.Time, tenant, failed bool) (quiet bool, more int) {
	limit := hostLines
	if tenant {
		limit = tenantLines
	}
	if !now.Before(h.until) {
		h.until, h.told = now.Add(hushPeriod), 0
	}
	if h.told >= limit {
		if failed {
			h.kept++
		}
		return true, 0
	}
	h.told++
	if failed {
		more, h.kept = h.kept, 0
	}
	return false, more
}
