// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"sync"
	"sync/atomic"
)

// maxHanging bounds the requests that a hanging file system can hold.
const maxHanging = 64

// workers run what may hang. A goroutine that has done its work waits for more, so
// that the next request finds one whose stack has grown already: growing it is a
// tenth of a request's cost.
type workers struct {
	idle chan func()
	quit chan struct{}
	mu   sync.Mutex
	busy atomic.Int64
	n    int // goroutines
	shut bool
}

func newWorkers() *workers { return &workers{idle: make(chan func()), quit: make(chan struct{})} }

// do runs f on a goroutine of its own; false when too many hang already, or after
// close.
func (w *workers) do(f func()) bool {
	select {
	case w.idle <- f:
		return true
	default:
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.shut || w.n >= maxHanging {
		return false
	}
	w.n++
	go w.work(f)
	return true
}

func (w *workers) work(f func()) {
	for {
		w.busy.Add(1)
		f()
		w.busy.Add(-1)
		select {
		case f = <-w.idle:
		case <-w.quit:
			return
		}
	}
}

// busyCount is the number of goroutines at work.
func (w *workers) busyCount() uint64 { return uint64(max(w.busy.Load(), 0)) }

// close ends the goroutines that wait. One that hangs is left to the end of the
// process.
func (w *workers) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.shut {
		w.shut = true
		close(w.quit)
	}
}
