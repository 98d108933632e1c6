// SPDX-License-Identifier: Apache-2.0

package throttle

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// reports collects the numbers of repetitions that a throttle reports.
type reports struct {
	mu sync.Mutex
	n  []int
}

func (r *reports) add(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n = append(r.n, n)
}

// occurrences returns how many occurrences the reports stand for.
func (r *reports) occurrences() (sum int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.n {
		sum += max(n, 1)
	}
	return sum
}

func (r *reports) want(t *testing.T, want ...int) {
	t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.n, want) {
		t.Errorf("reported %v, want %v", r.n, want)
	}
}

// The kubelet tries a refused container again every three seconds: there is one line, and then one a minute
// with a count. Another key has its own line at once. No occurrence goes uncounted.
func TestRepetitionsAreReportedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var throttle Throttle[string]
		var got reports
		for range 18 { // Two minutes. No occurrence coincides with a report, because their order would be undefined.
			throttle.Report("a", got.add)
			time.Sleep(7 * time.Second)
		}
		got.want(t, 0, 8, 9)
		throttle.Report("b", got.add)
		throttle.Report("c", got.add)
		throttle.Report("a", got.add)
		throttle.Close()
		if sum := got.occurrences(); sum != 21 {
			t.Errorf("reported %v: %d occurrences, want 21", got.n, sum)
		}
		throttle.Report("a", got.add) // during the end of the process
		if len(throttle.keys) > 0 {
			t.Errorf("%d keys are kept after the end", len(throttle.keys))
		}
	})
}

// A key that paused for an interval is reported at once again.
func TestKeyIsForgottenAfterQuietInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var throttle Throttle[string]
		var got reports
		throttle.Report("a", got.add)
		time.Sleep(61 * time.Second)
		throttle.Report("a", got.add)
		got.want(t, 0, 0)
		throttle.Close()
	})
}

func TestOccurrencesBeyondBurstAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		throttle := Throttle[string]{Interval: 5 * time.Second, Burst: 3}
		var got reports
		for range 10_000 { // for one second
			throttle.Report("a", got.add)
			time.Sleep(100 * time.Microsecond)
		}
		time.Sleep(5 * time.Second)
		got.want(t, 0, 0, 0, 9_997)
		for range 4 {
			throttle.Report("a", got.add)
		}
		got.want(t, 0, 0, 0, 9_997, 0, 0) // the count was one of the interval's three reports
		throttle.Close()
		got.want(t, 0, 0, 0, 9_997, 0, 0, 2)
	})
}

func TestResetDropsRepetitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var throttle Throttle[string]
		var got reports
		throttle.Report("a", got.add)
		throttle.Report("a", got.add)
		throttle.Reset()
		time.Sleep(2 * time.Minute)
		got.want(t, 0)
		throttle.Report("a", got.add)
		got.want(t, 0, 0)
		throttle.Close()
	})
}
