// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"runtime"
	"testing"

	"github.com/jackfield/jackfield/pkg/busytest"
	"github.com/jackfield/jackfield/pkg/telemetry"
)

func TestWorkers(t *testing.T) {
	before := runtime.NumGoroutine()
	w := newWorkers()
	hang := make(chan struct{})
	for i := range maxHanging {
		if !w.do(func() { <-hang }) {
			t.Fatalf("request %d was not taken", i)
		}
	}
	if w.do(func() {}) {
		t.Error("more were taken than may hang")
	}
	close(hang)
	// They come back one by one, and are used again.
	done := make(chan struct{})
	if !busytest.Until(func() bool { return w.do(func() { close(done) }) }) {
		t.Fatal("a worker that was released is not used again")
	}
	<-done
	if w.n != maxHanging {
		t.Errorf("%d goroutines, want %d", w.n, maxHanging)
	}
	w.close()
	w.close()
	if !busytest.Until(func() bool { return runtime.NumGoroutine() <= before }) {
		t.Fatalf("%d goroutines are left, %d were there before", runtime.NumGoroutine(), before)
	}
	if w.do(func() {}) {
		t.Error("a request was taken after close")
	}
}

func TestLaterRunsEverythingInOrder(t *testing.T) {
	l := newLater(&telemetry.Counter{})
	var got []int
	for i := range 200 {
		l.do(func() { got = append(got, i) })
	}
	l.close()
	if len(got) != 200 || got[0] != 0 || got[199] != 199 {
		t.Errorf("ran %d: %v", len(got), got)
	}
}
