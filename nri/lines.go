// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackfield/jackfield/pkg/telemetry"
)

const (
	maxLines     = 4096    // that wait to be written
	maxLineBytes = 4 << 20 // that wait to be written
	flushTime    = time.Second
)

// lines hands lines to a writer that may be slow, or never answer: whoever puts
// one never waits. What is more than is kept is lost, and counted.
type lines struct {
	queue   chan []byte
	bytes   atomic.Int64
	dropped *telemetry.Counter
	write   func(line []byte)
	once    sync.Once
	quit    chan struct{}
	done    chan struct{}
}

func newLines(dropped *telemetry.Counter, write func(line []byte)) *lines {
	l := &lines{queue: make(chan []byte, maxLines), dropped: dropped, write: write, quit: make(chan struct{}), done: make(chan struct{})}
	go l.run()
	return l
}

// put takes over the line.
func (l *lines) put(line []byte) {
	n := int64(len(line))
	if l.bytes.Add(n) > maxLineBytes {
		l.bytes.Add(-n)
		l.dropped.Add()
		return
	}
	select {
	case l.queue <- line:
	default:
		l.bytes.Add(-n)
		l.dropped.Add()
	}
}

func (l *lines) run() {
	defer close(l.done)
	for {
		select {
		case line := <-l.queue:
			l.one(line)
		case <-l.quit:
			for {
				select {
				case line := <-l.queue:
					l.one(line)
				default:
					return
				}
			}
		}
	}
}

func (l *lines) one(line []byte) {
	l.bytes.Add(-int64(len(line)))
	l.write(line)
}

// close has what waits written, for a second at most. The goroutine of a writer
// that never answers is left behind.
func (l *lines) close() {
	l.once.Do(func() { close(l.quit) })
	select {
	case <-l.done:
	case <-time.After(flushTime):
	}
}

// lossyWriter is a log's output that never blocks.
type lossyWriter struct{ l *lines }

// Write implements io.Writer for a logger, which gives one line at a time and uses
// the memory again.
func (w lossyWriter) Write(p []byte) (int, error) {
	w.l.put(append([]byte(nil), p...))
	return len(p), nil
}

func newLossyWriter(w io.Writer, dropped *telemetry.Counter) lossyWriter {
	return lossyWriter{newLines(dropped, func(line []byte) { _, _ = w.Write(line) })}
}
