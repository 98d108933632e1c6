// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// drain keeps the connection open until the calls under way have their answers: a
// runtime that loses the plugin while it waits creates the container without what
// it was granted.
type drain struct {
	running  atomic.Int64
	finished atomic.Uint64
	ending   atomic.Bool

	mu     sync.Mutex
	writes *atomic.Uint64 // of the present connection
	after  uint64         // writes there were when the last call ended
}

func (d *drain) enter() { d.running.Add(1) }

func (d *drain) leave() {
	if d.ending.Load() {
		d.mu.Lock()
		if d.writes != nil {
			d.after = d.writes.Load()
		}
		d.mu.Unlock()
	}
	d.finished.Add(1)
	d.running.Add(-1)
}

// answerTime is how long an answer may take from its handler to the connection.
const answerTime = 200 * time.Millisecond

// calm is how long nothing may come in before the connection is closed: the
// runtime may have sent a call that is not read yet.
const calm = 10 * time.Millisecond

// wait returns when no call is under way and the last one's answer is on its way.
// A call takes limit at most.
func (d *drain) wait(limit time.Duration) {
	d.ending.Store(true)
	began, quiet, before := time.Now(), time.Now(), d.finished.Load()
	for ; time.Since(began) < 2*limit; time.Sleep(time.Millisecond) {
		if n := d.finished.Load(); d.running.Load() > 0 || n != before {
			quiet, before = time.Now(), n
			continue
		}
		still := time.Since(quiet)
		// On a node where calls never pause, the moment between two of them has to do.
		if (still >= calm || time.Since(began) >= limit) && (d.answered() || still >= answerTime) {
			return
		}
	}
}

func (d *drain) answered() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	// A call that ended before the draining began has its answer since: calm.
	return d.writes == nil || d.after == 0 || d.writes.Load() > d.after
}

// dial connects to the runtime's socket and counts what is written.
func (d *drain) dial(path string) (net.Conn, error) {
	var dialer net.Dialer
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	counted := &countedConn{Conn: c}
	d.mu.Lock()
	d.writes, d.after = &counted.writes, 0
	d.mu.Unlock()
	return counted, nil
}

type countedConn struct {
	net.Conn
	writes atomic.Uint64
}

// Write implements net.Conn. A write is counted when it is done.
func (c *countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.writes.Add(1)
	return n, err
}
