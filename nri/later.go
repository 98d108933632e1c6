// SPDX-License-Identifier: Apache-2.0

package nri

// later runs what nobody waits for, one after the other on one goroutine: a log
// line costs a third of what a container does.
type later struct {
	queue      chan func()
	quit, done chan struct{}
}

func newLater() *later {
	l := &later{queue: make(chan func(), 256), quit: make(chan struct{}), done: make(chan struct{})}
	go l.run()
	return l
}

// do has f run soon, or runs it at once when more is waiting than is kept.
func (l *later) do(f func()) {
	select {
	case l.queue <- f:
	default:
		f()
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

// close runs what is waiting and ends the goroutine. It is called once.
func (l *later) close() {
	close(l.quit)
	<-l.done
}
