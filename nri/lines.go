// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"io"
	"sync/atomic"

	"github.com/jackfield/jackfield/pkg/telemetry"
)

const (
	maxLines     = 4096    // that wait to be written
	maxLineBytes = 4 << 20 // that wait to be written
)

// lines hands lines to a writer that may be slow, or never answer. What is more than
// is kept is lost, and counted.
type lines struct {
	queue   *queue[[]byte]
	bytes   atomic.Int64
	dropped *telemetry.Counter
}

func newLines(dropped *telemetry.Counter, write func(line []byte)) *lines {
	l := &lines{dropped: dropped}
	l.queue = newQueue(maxLines, func(line []byte) {
		l.bytes.Add(-int64(len(line)))
		write(line)
	})
	return l
}

// put takes over the line.
func (l *lines) put(line []byte) {
	n := int64(len(line))
	if l.bytes.Add(n) > maxLineBytes || !l.queue.put(line) {
		l.bytes.Add(-n)
		l.dropped.Add()
	}
}

// close has what waits written. It is called once.
func (l *lines) close() { l.queue.close() }

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
