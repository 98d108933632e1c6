// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"time"

	"github.com/jackfield/jackfield/pkg/telemetry"
)

// inTime runs f, which works for the state directory, on a worker and waits for it,
// but not past the time that the runtime gives: f goes on by itself then, and what
// is left is removed when the plugin synchronizes the next time.
func (p *Plugin) inTime(ctx context.Context, h telemetry.Handler, f func()) {
	ctx, cancel := p.budget(ctx)
	defer cancel()
	done := make(chan struct{})
	accepted := p.workers.do(func() {
		defer close(done)
		defer func() {
			if r := recover(); r != nil {
				_ = p.caught(p.log, r) // whoever waits is told nothing but the end
			}
		}()
		f()
	})
	if !accepted {
		p.counters.Timeouts[h].Add()
		p.log.Warnf("%s: %d earlier requests still hang on this host's file systems", h, maxHanging)
		return
	}
	select {
	case <-done:
	case <-ctx.Done():
		p.counters.Timeouts[h].Add()
		p.log.Warnf("%s: not done within the runtime's time, and goes on", h)
	}
}

// closeTime is how long the end of the process waits for a file system.
const closeTime = 2 * time.Second

// closeInTime runs f and waits for it, but not for ever: what hangs ends with the
// process.
func closeInTime(f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-time.After(closeTime):
		return nil
	}
}
