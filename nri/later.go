// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"time"

	"github.com/jackfield/jackfield/pkg/telemetry"
)

// later runs what nobody waits for, one after the other on one goroutine: a log
// line costs a third of what a container does.
type later struct {
	queue      chan func()
	quit, done chan struct{}
	lost       *telemetry.Counter
}

func newLater(lost *telemetry.Counter) *later {
	l := &later{queue: make(chan func(), 4096), quit: make(chan struct{}), done: make(chan struct{}), lost: lost}
	go l.run()
	return l
}

// do has f run soon. When more is waiting than is kept, because what f does hangs,
// it is lost and counted: nobody waits.
func (l *later) do(f func()) {
	select {
	case l.queue <- f:
	default:
		l.lost.Add()
	}
}

func (l *later) run() {
	defer close(l.done)
	for {
		select {
		case f := <-l.queue:
			f()
		case <-l.quit:
			for {
				select {
				case f := <-l.queue:
					f()
				default:
					return
				}
			}
		}
	}
}

// close runs what is waiting, for a second at most, and ends the goroutine. It is
// called once.
func (l *later) close() {
	close(l.quit)
	select {
	case <-l.done:
	case <-time.After(flushTime):
	}
}
