// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"

	"github.com/jackfield/jackfield/internal/deadline"
	"github.com/jackfield/jackfield/internal/telemetry"
)

// background is a goroutine of the plugin that works when it is woken up, until the plugin closes.
type background struct{ wakeup, done chan struct{} }

func newBackground() background {
	return background{wakeup: make(chan struct{}, 1), done: make(chan struct{})}
}

// wakeUp has the goroutine work.
func (b *background) wakeUp() {
	select {
	case b.wakeup <- struct{}{}:
	default:
	}
}

// waitForEnd waits for the end of the goroutine. What hangs on a file system ends with the process.
func (b *background) waitForEnd() {
	select {
	case <-b.done:
	case <-time.After(closeTimeout):
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

// startupWait bounds how long applying a configuration waits for directories that can hang. A
// runtime that starts the plugin expects it to register within five seconds.
type startupWait struct{ until time.Time }

const (
	// startupTimeout is how long applying a configuration waits for all directories, and
	// stepTimeout how long it waits at least for each.
	startupTimeout, stepTimeout = time.Second, 100 * time.Millisecond
)

func newStartupWait() startupWait { return startupWait{time.Now().Add(startupTimeout)} }

func (w startupWait) timeLeft() time.Duration { return max(stepTimeout, time.Until(w.until)) }

// runWithin runs f, and stops waiting for it when the time is up.
func (w startupWait) runWithin(f func()) {
	_ = deadline.Within(w.timeLeft(), func() error { f(); return nil })
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
