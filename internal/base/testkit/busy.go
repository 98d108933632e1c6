// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Hangs is the time after which a test treats work as hanging. It is longer than any delay on a busy machine.
const Hangs = 2 * time.Minute

// CPU returns the processor time that all threads of this process have used.
func CPU() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts)
	return time.Duration(ts.Nano())
}

// Cheap runs f, and fails the test if f uses more processor time than most, or hangs.
func Cheap(t testing.TB, most time.Duration, f func()) {
	t.Helper()
	began, before := time.Now(), CPU()
	f()
	cost, took := CPU()-before, time.Since(began)
	t.Logf("%v of processor time, limit %v", cost, most)
	if cost > most || took > Hangs {
		t.Errorf("%v of processor time in %v; limits are %v and %v", cost, took, most, Hangs)
	}
}

// Until waits until a condition holds. It returns false if the condition does not hold within Hangs.
func Until(condition func() bool) bool {
	for end := time.Now().Add(Hangs); ; time.Sleep(2 * time.Millisecond) {
		if condition() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}
