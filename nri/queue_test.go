// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"testing"

	"github.com/jackfield/jackfield/pkg/telemetry"
)

// Whoever puts something into a queue whose goroutine hangs never waits, what is too
// much is counted, and what was taken is done before the end.
func TestQueue(t *testing.T) {
	hang, began := make(chan struct{}), make(chan struct{}, 3)
	done := 0
	q := newQueue(2, func(n int) {
		began <- struct{}{}
		<-hang
		done += n
	})
	if !q.put(1) {
		t.Fatal("an empty queue is full")
	}
	<-began
	if !q.put(10) || !q.put(100) || q.put(1000) {
		t.Error("a queue of two holds more or fewer")
	}
	close(hang)
	q.close()
	if done != 111 {
		t.Errorf("done: %d, want what was taken", done)
	}
}

func TestLinesAreBounded(t *testing.T) {
	var dropped telemetry.Counter
	hang := make(chan struct{})
	l := newLines(&dropped, func([]byte) { <-hang })
	long := make([]byte, maxLineBytes/2)
	for range 4 {
		l.put(long)
	}
	if n := dropped.Load(); n != 2 && n != 1 { // one may be in the writer's hand
		t.Errorf("%d of four lines of half the limit were dropped", n)
	}
	close(hang)
	l.close()
	if n := l.bytes.Load(); n != 0 {
		t.Errorf("%d bytes are counted when none are left", n)
	}
}
