// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"fmt"
	"time"
)

const (
	// throttlePeriod is the time in which one socket causes a limited number of log lines. It
	// could fill the node's log.
	throttlePeriod = 5 * time.Second
	// maxHostLines limits what only the host can cause, maxTenantLines what a tenant can.
	maxHostLines, maxTenantLines = 16, 1
)

// logThrottle limits the log lines of one source, such as a socket.
type logThrottle struct {
	periodEnd  time.Time // end of the period
	lines      int       // logged in the period
	suppressed int       // failures since the last one that was logged
}

// countLine counts a line and reports whether to suppress it. For a failure that is logged it
// also returns how many failures before it were suppressed. The caller says for each line
// whether a tenant can cause it, because a tenant can get a directory later.
func (h *logThrottle) countLine(now time.Time, tenant, failed bool) (suppress bool, suppressed int) {
	limit := maxHostLines
	if tenant {
		limit = maxTenantLines
	}
	if !now.Before(h.periodEnd) {
		h.periodEnd, h.lines = now.Add(throttlePeriod), 0
	}
	if h.lines >= limit {
		if failed {
			h.suppressed++
		}
		return true, 0
	}
	h.lines++
	if failed {
		suppressed, h.suppressed = h.suppressed, 0
	}
	return false, suppressed
}

// withSuppressed adds to an error how many failures before it were suppressed.
func withSuppressed(err error, suppressed int) error {
	if suppressed == 0 {
		return err
	}
	return fmt.Errorf("%w; %d failures before it were not logged", err, suppressed)
}
