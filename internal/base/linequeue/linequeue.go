// SPDX-License-Identifier: Apache-2.0

// Package linequeue passes lines to a writer that can be slow or block forever.
//
// Invariant: adding a line never blocks, and the queue is bounded. A line that does not fit is
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
	// flushTimeout bounds the time that Close waits for the queued lines.
	flushTimeout = time.Second
)

// Queue is a queue of lines. Its Write makes it the output of a logger.
type Queue struct {
	write   func(line []byte)
	dropped func()
	lines   chan queued
	bytes   atomic.Int64 // in lines

	quit, done chan struct{}
}

// queued is a line, or the function that encodes it.
type queued struct {
	line   []byte
	encode func() []byte // nil for a line
	size   int           // in bytes, as it counts for maxBytes
}

// New returns a queue that calls write for each line in order, and dropped for each line that does
// not fit.
func New(write func(line []byte), dropped func()) *Queue {
	q := &Queue{write: write, dropped: dropped, lines: make(chan queued, maxLines), quit: make(chan struct{}),
		done: make(chan struct{})}
	go q.run()
	return q
}

// Add queues the line. The caller must not reuse its memory.
func (q *Queue) Add(line []byte) { q.add(queued{line: line, size: len(line)}) }

// AddEncoder queues a line that encode returns once all earlier lines are written, so that the caller does not wait for
// the encoding. size is about its length in bytes.
func (q *Queue) AddEncoder(size int, encode func() []byte) { q.add(queued{encode: encode, size: size}) }

// add queues a line. It never blocks: a line is dropped if the queue then had too many bytes or lines.
func (q *Queue) add(l queued) {
	if q.bytes.Add(int64(l.size)) <= maxBytes {
		select {
		case q.lines <- l:
			return
		default:
		}
	}
	q.bytes.Add(-int64(l.size))
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

// writeLine encodes and writes a line on the goroutine of the queue.
func (q *Queue) writeLine(l queued) {
	q.bytes.Add(-int64(l.size))
	if l.encode != nil {
		l.line = l.encode()
	}
	q.write(l.line)
}

// Close waits until the queued lines are written, and ends the queue. A hanging writer ends with
// the process. Close must be called once.
func (q *Queue) Close() {
	close(q.quit)
	_ = deadline.Within(2*flushTimeout, func() error { <-q.done; return nil })
}
