// SPDX-License-Identifier: Apache-2.0

package busytest

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Hangs is longer than any machine is held up: what takes so long hangs.
const Hangs = 2 * time.Minute

// CPU is the processor time that this process has had, in all its threads.
func CPU() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts)
	return time.Duration(ts.Nano())
}

// Cheap runs f, and fails the test where that costs more than most, in processor time,
// or hangs.
func Cheap(t testing.TB, most time.Duration, f func()) {
	t.Helper()
	began, before := time.Now(), CPU()
	f()
	cost, took := CPU()-before, time.Since(began)
	t.Logf("%v of processor time, %v at most", cost, most)
	if cost > most || took > Hangs {
		t.Errorf("it cost %v of processor time, and took %v; want %v at most, and not %v", cost, took, most, Hangs)
	}
}

// Until waits until something is so, and reports whether it came to be.
func Until(so func() bool) bool {
	for end := time.Now().Add(Hangs); ; time.Sleep(2 * time.Millisecond) {
		if so() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}
