// SPDX-License-Identifier: Apache-2.0

package linequeue

import (
	"strings"
	"testing"
)

// Adding to a queue with a hanging writer does not block. Dropped lines are reported, and the queued lines
// are written before the end.
func TestAddDoesNotWaitForHangingWriter(t *testing.T) {
	hang, began := make(chan struct{}), make(chan struct{}, maxLines+2)
	var written strings.Builder
	dropped := 0
	q := New(func(line []byte) {
		began <- struct{}{}
		<-hang
		written.Write(line)
	}, func() { dropped++ })
	q.Add([]byte("a"))
	<-began
	for range maxLines {
		q.Add([]byte("b"))
	}
	q.Add([]byte("c"))
	if dropped != 1 {
		t.Errorf("%d lines were dropped, want the one beyond the limit", dropped)
	}
	close(hang)
	q.Close()
	if got, want := written.String(), "a"+strings.Repeat("b", maxLines); got != want {
		t.Errorf("%d lines were written, want %d in order", len(got), len(want))
	}
}

func TestBytesAreBounded(t *testing.T) {
	hang, dropped := make(chan struct{}), 0
	q := New(func([]byte) { <-hang }, func() { dropped++ })
	long := make([]byte, maxBytes/2)
	for range 4 {
		q.Add(long)
	}
	if dropped != 2 && dropped != 1 { // the writer may have one
		t.Errorf("%d of four lines of half the limit were dropped", dropped)
	}
	close(hang)
	q.Close()
	if n := q.bytes.Load(); n != 0 {
		t.Errorf("%d bytes are counted when none are left", n)
	}
}

// A logger reuses the memory of a line.
func TestWriteCopiesReusedLine(t *testing.T) {
	hang, written := make(chan struct{}), ""
	q := New(func(line []byte) { <-hang; written += string(line) }, func() { t.Error("dropped") })
	line := []byte("one\n")
	for _, text := range []string{"one\n", "two\n"} {
		copy(line, text)
		if n, err := q.Write(line); n != len(line) || err != nil {
			t.Errorf("Write: %d, %v", n, err)
		}
	}
	close(hang)
	q.Close()
	if written != "one\ntwo\n" {
		t.Errorf("written: %q", written)
	}
}

// Encoded lines keep their place among the others, and count for the limit with the given size.
func TestEncodersKeepOrderAndLimit(t *testing.T) {
	hang, dropped := make(chan struct{}), 0
	var written strings.Builder
	q := New(func(line []byte) { <-hang; written.Write(line) }, func() { dropped++ })
	q.Add([]byte("a"))
	q.AddEncoder(1, func() []byte { return []byte("bb") })
	q.Add([]byte("c"))
	q.AddEncoder(maxBytes+1, func() []byte { t.Error("a dropped line was encoded"); return nil })
	close(hang)
	q.Close()
	if got := written.String(); got != "abbc" || dropped != 1 {
		t.Errorf("written %q, dropped %d", got, dropped)
	}
	if n := q.bytes.Load(); n != 0 {
		t.Errorf("%d bytes are counted when none are left", n)
	}
}
