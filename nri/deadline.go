// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"

	"github.com/jackfield/jackfield/internal/deadline"
	"github.com/jackfield/jackfield/internal/telemetry"
)

// background are the goroutines that work until the plugin closes.
type background struct {
	closing context.Context
	end     context.CancelFunc // has them end
	tasks   sync.WaitGroup
}

// runWhenWoken has work called in a goroutine of its own: after each call of wakeUp, and after each
// interval; 0 stands for none.
func (b *background) runWhenWoken(interval time.Duration, work func()) (wakeUp func()) {
	wake := make(chan struct{}, 1)
	b.tasks.Go(func() {
		var tick <-chan time.Time
		if interval > 0 {
			ticker := time.NewTicker(interval)
			defer ticker.Stop()
			tick = ticker.C
		}
		for {
			select {
			case <-b.closing.Done():
				return
			case <-wake:
			case <-tick:
			}
			work()
		}
	})
	return func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

// closeTimeout is how long the end of the process waits for a file system.
const closeTimeout = 2 * time.Second

// closeWithin runs f and waits for it. What hangs ends with the process.
func closeWithin(f func() error) error {
	err := deadline.Within(closeTimeout, f)
	if errors.Is(err, deadline.ErrTimeout) {
		return nil
	}
	return err
}

// timeLeft returns the time that the runtime gives for the call of ctx.
func (p *Plugin) timeLeft(ctx context.Context) time.Duration {
	limit := p.requestTimeout()
	if until, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(until))
	}
	return limit
}

// runOnWorker runs f, which can hang, on a worker, and waits for it until the runtime's deadline
// is near: then the error is [deadline.ErrTimeout], and f goes on by itself.
func (p *Plugin) runOnWorker(ctx context.Context, h telemetry.Handler, log *logrus.Entry, f func() error) error {
	_, err := runOrHandOver(ctx, p, h, log, func(context.Context) (struct{}, error) { return struct{}{}, f() }, func(struct{}) {})
	return err
}

// runOrHandOver is runOnWorker for work with a result: either the caller gets it, or, after a
// timeout, late does, on the worker.
func runOrHandOver[T any](ctx context.Context, p *Plugin, h telemetry.Handler, log *logrus.Entry, f func(context.Context) (T, error), late func(T)) (T, error) {
	limit := p.timeLeft(ctx)
	limit -= limit / 8 // the answer has to arrive in time
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	result, err := deadline.RunOrHandOver(p.workers, limit, func() (result T, err error) {
		defer p.recoverPanic(&err, log)
		return f(ctx)
	}, func(result T, err error) {
		defer p.recoverPanic(&err, log)
		late(result)
	})
	if err != nil && ctx.Err() != nil {
		err = deadline.ErrTimeout
	}
	if isTimeout(err) {
		p.counters.CountTimeout(h)
	}
	return result, err
}

// isTimeout reports whether runOnWorker did not wait for the end of the work.
func isTimeout(err error) bool {
	return errors.Is(err, deadline.ErrTimeout) || errors.Is(err, deadline.ErrBusy)
}

// explainTimeout returns an error of runOnWorker as the runtime reports it in an event of the pod.
func (p *Plugin) explainTimeout(err error) error {
	switch {
	case errors.Is(err, deadline.ErrBusy):
		return errdefs.ErrUnavailable.WithMessage(fmt.Sprintf("all %d workers are blocked on host file systems (run \"jackfield doctor\")", maxWorkers))
	case errors.Is(err, deadline.ErrTimeout):
		which := ""
		if faults := p.dirs.Faults(); len(faults) > 0 {
			which = " (" + strings.Join(faults, "; ") + ")"
		}
		return errdefs.ErrUnavailable.WithMessage("given up before the runtime's deadline: a file system or socket of this host is unresponsive" + which)
	}
	return err
}

// recoverPanic is a deferred call that makes a panic the error of its function. It counts the
// panic and logs it.
func (p *Plugin) recoverPanic(err *error, log *logrus.Entry) {
	if r := recover(); r != nil {
		p.counters.Panics.Add(1)
		log.WithField("panic", r).Error(string(debug.Stack()))
		*err = errdefs.ErrInternal.WithMessage(fmt.Sprintf("internal error, see the plugin's log: %v", r))
	}
}

// startupTimeout is how long each step of applying a configuration waits for a directory that can
// hang. A runtime that starts the plugin expects it to register within five seconds.
const startupTimeout = 500 * time.Millisecond

// waitAtStart runs f, and waits for it as long as the start may.
func waitAtStart(f func()) {
	_ = deadline.Within(startupTimeout, func() error { f(); return nil })
}

const (
	// firstRetry and lastRetry are the shortest and the longest wait before a retry.
	firstRetry, lastRetry = time.Second, time.Minute
)

// backoff doubles the wait before each retry. The zero value is ready.
type backoff struct{ wait time.Duration }

// nextWait returns the wait before the next retry.
func (b *backoff) nextWait() time.Duration {
	b.wait = min(max(2*b.wait, firstRetry), lastRetry)
	return b.wait
}

// resetWait begins with the shortest wait again, after a success.
func (b *backoff) resetWait() { b.wait = 0 }

// sleep returns after d, or when ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
