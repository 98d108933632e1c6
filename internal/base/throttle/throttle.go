// SPDX-License-Identifier: Apache-2.0

// Package throttle limits log lines that repeat. An error that returns every few seconds, or as often as a tenant
// causes it, must neither fill the node's log nor go uncounted.
package throttle

import (
	"cmp"
	"sync"
	"time"
)

// maxKeys bounds the keys that are stored. All others are reported each time.
const maxKeys = 4096

// Throttle reports the first occurrence of a key at once, and then once in an interval how often it was repeated.
// The zero value is ready.
type Throttle[K comparable] struct {
	// Interval is the time between two reports of a key; 0 stands for one minute.
	Interval time.Duration
	// Burst is the number of occurrences that are reported at once in an interval; 0 stands for one.
	Burst int

	mu     sync.Mutex
	closed bool
	keys   map[K]*repetition
}

// repetition is a key that occurred in the present interval.
type repetition struct {
	reported int         // in the interval
	repeats  int         // since the last report
	report   func(n int) // of the last occurrence
	timer    *time.Timer // ends the interval
}

// Report calls report with 0 for an occurrence of the key that is reported at once. Otherwise it calls report of the
// last occurrence at the end of the interval, with the number of repetitions.
func (t *Throttle[K]) Report(key K, report func(repeats int)) {
	t.mu.Lock()
	r := t.keys[key]
	switch {
	case r != nil && r.reported >= max(t.Burst, 1):
		r.repeats++
		r.report = report
		t.mu.Unlock()
		return
	case r != nil:
		r.reported++
	case len(t.keys) < maxKeys && !t.closed:
		if t.keys == nil {
			t.keys = make(map[K]*repetition)
		}
		t.keys[key] = &repetition{reported: 1, timer: time.AfterFunc(t.interval(), func() { t.flush(key) })}
	}
	t.mu.Unlock()
	report(0)
}

func (t *Throttle[K]) interval() time.Duration { return cmp.Or(t.Interval, time.Minute) }

// flush reports the repetitions of a key, and forgets a key without any.
func (t *Throttle[K]) flush(key K) {
	t.mu.Lock()
	r := t.keys[key]
	if r == nil {
		t.mu.Unlock()
		return
	}
	n, report := r.repeats, r.report
	r.repeats, r.reported = 0, 1
	if n == 0 || t.closed {
		delete(t.keys, key)
	} else {
		r.timer.Reset(t.interval())
	}
	t.mu.Unlock()
	if n > 0 {
		report(n)
	}
}

// Reset forgets all keys and drops the repetitions that are not reported yet.
func (t *Throttle[K]) Reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.keys {
		r.timer.Stop()
	}
	clear(t.keys)
}

// Close reports the repetitions that are not reported yet. Later occurrences are reported at once.
func (t *Throttle[K]) Close() {
	t.mu.Lock()
	t.closed = true
	var keys []K
	for key, r := range t.keys {
		r.timer.Stop()
		keys = append(keys, key)
	}
	t.mu.Unlock()
	for _, key := range keys {
		t.flush(key)
	}
}
