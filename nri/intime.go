// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"

	"github.com/jackfield/jackfield/pkg/telemetry"
)

// errLate is for work that goes on after the runtime's time for it.
var errLate = fmt.Errorf("not done within the runtime's time, and goes on: %w", errdefs.ErrUnavailable)

// onWorker runs f, which may hang, on a worker, and waits for it, but not past the time
// that the runtime gives: f goes on by itself then.
func (p *Plugin) onWorker(ctx context.Context, h telemetry.Handler, log func() *logrus.Entry, f func() error) error {
	ctx, cancel := p.budget(ctx)
	defer cancel()
	done := make(chan error, 1)
	accepted := p.workers.do(func() {
		defer func() {
			if r := recover(); r != nil {
				done <- p.caught(log(), r)
			}
		}()
		done <- f()
	})
	if !accepted {
		p.counters.Timeouts[h].Add()
		return errHanging()
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		p.counters.Timeouts[h].Add()
		return errLate
	}
}

// inTime runs f, which works for the state directory, in the runtime's time. What is
// left is removed when the plugin synchronizes the next time.
func (p *Plugin) inTime(ctx context.Context, h telemetry.Handler, f func()) {
	err := p.onWorker(ctx, h, func() *logrus.Entry { return p.log }, func() error {
		f()
		return nil
	})
	if err != nil {
		p.log.Warnf("%s: %v", h, err)
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
