// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// The kubelet tries a refused container again every three seconds: there is one line, and then one a minute
// with a count. Another reason or container has its own line at once. No refusal goes uncounted.
func TestRepeatedRefusalsAreReportedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var throttle refusalThrottle
		var mu sync.Mutex
		var got []int
		report := func(n int) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, n)
		}
		a := refusalKey{"ns", "p", "c", "no rule"}
		for range 18 { // Two minutes. No refusal coincides with a report, because their order would be undefined.
			throttle.reportThrottled(a, report)
			time.Sleep(7 * time.Second)
		}
		synctest.Wait()
		mu.Lock()
		if !slices.Equal(got, []int{0, 8, 9}) {
			t.Errorf("reported %v, want the first and two counts", got)
		}
		mu.Unlock()
		throttle.reportThrottled(refusalKey{"ns", "p", "c", "another reason"}, report)
		throttle.reportThrottled(refusalKey{"ns", "p", "d", "no rule"}, report)
		throttle.reportThrottled(a, report)
		throttle.close()
		mu.Lock()
		sum := 0
		for _, n := range got {
			sum += max(n, 1)
		}
		if sum != 21 {
			t.Errorf("reported %v: %d refusals, want 21", got, sum)
		}
		mu.Unlock()
		throttle.reportThrottled(a, report) // during the end of the process
		if len(throttle.refusals) > 0 {
			t.Errorf("%d refusals are kept after the end", len(throttle.refusals))
		}
	})
}

// A container that is refused again has no second line in the log and the audit file.
func TestRefusedContainerIsLoggedOnce(t *testing.T) {
	h := newReloadHost(t, refusing, false)
	for range 3 {
		if err := h.create(); err == nil {
			t.Fatal("the container is created")
		}
	}
	if n := strings.Count(h.log.String(), "container refused"); n != 1 {
		t.Errorf("%d lines, want 1", n)
	}
}
