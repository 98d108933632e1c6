// SPDX-License-Identifier: Apache-2.0

package nri

import "time"

// flushTime is how long the end of the process waits for what is in a queue.
const flushTime = time.Second

// queue hands things to a goroutine of its own, one after the other: whoever puts
// one never waits. It holds a bounded number.
type queue[T any] struct {
	things     chan T
	quit, done chan struct{}
}

// newQueue makes a queue that holds up to most things for do.
func newQueue[T any](most int, do func(T)) *queue[T] {
	q := &queue[T]{things: make(chan T, most), quit: make(chan struct{}), done: make(chan struct{})}
	go q.run(do)
	return q
}

// put is false where the queue is full.
func (q *queue[T]) put(thing T) bool {
	select {
	case q.things <- thing:
		return true
	default:
		return false
	}
}

func (q *queue[T]) run(do func(T)) {
	defer close(q.done)
	for {
		select {
		case thing := <-q.things:
			do(thing)
		case <-q.quit:
			for end := time.Now().Add(flushTime); time.Now().Before(end); {
				select {
				case thing := <-q.things:
					do(thing)
				default:
					return
				}
			}
			return
		}
	}
}

// close has what waits done, for flushTime at most, and ends the goroutine; one that
// hangs is left to the end of the process. It is called once.
func (q *queue[T]) close() {
	close(q.quit)
	select {
	case <-q.done:
	case <-time.After(2 * flushTime):
	}
}
