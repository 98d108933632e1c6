// SPDX-License-Identifier: Apache-2.0

// Package linequeue hands lines to a writer that may be slow or block for ever.
//
// Invariant: adding a line never waits, and what waits is bounded. A line that does not fit is
// dropped and reported.
package linequeue

import (
	"sync/atomic"
	"time"

	"github.com/jackfield/jackfield/internal/base/deadline"
)

const (
	maxLines = 4096
	maxBytes = 4 << 20
	// flushTimeout is how long Close has the waiting lines written.
	flushTimeout = time.Second
)

// Queue is a queue of lines. Its Write makes it the output of a logger.
type Queue struct {
	write   func(line []byte)
	dropped func()
	lines   chan []byte
	bytes   atomic.Int64 // in lines

	quit, done chan struct{}
}

// New returns a queue that calls write for one line after the other, and dropped for each line
// that does not fit.
func New(write func(line []byte), dropped func()) *Queue {
	q := &Queue{write: write, dropped: dropped, lines: make(chan []byte, maxLines), quit: make(chan struct{}),
		done: make(chan struct{})}
	go q.run()
	return q
}

// Add takes over the line.
func (q *Queue) Add(line []byte) {
	n := int64(len(line))
	if q.bytes.Add(n) <= maxBytes {
		select {
		case q.lines <- line:
			return
		default:
		}
	}
	q.bytes.Add(-n)
	q.dropped()
}

// Write implements io.Writer for a logger, which passes one line at a time and reuses the
// memory.
func (q *Queue) Write(p []byte) (int, error) {
	q.Add(append([]byte(nil), p...))
	return len(p), nil
}

func (q *Queue) run() {
	defer close(q.done)
	for {
		select {
		case line := <-q.lines:
			q.writeLine(line)
			continue
		case <-q.quit:
		}
		for end := time.Now().Add(flushTimeout); time.Now().Before(end); {
			select {
			case line := <-q.lines:
				q.writeLine(line)
			default:
				return
			}
		}
		return
	}
}

func (q *Queue) writeLine(line []byte) {
	q.bytes.Add(-int64(len(line)))
	q.write(line)
}

// Close waits until the waiting lines are written, and ends the queue. A writer that hangs is
// left to the end of the process. Close is called once.
func (q *Queue) Close() {
	close(q.quit)
	_ = deadline.Within(2*flushTimeout, func() error { <-q.done; return nil })
}
