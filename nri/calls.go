// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"

	"github.com/jackfield/jackfield/internal/base/deadline"
	"github.com/jackfield/jackfield/internal/report/telemetry"
)

// maxWorkers bounds the goroutines that unresponsive file systems can block.
const maxWorkers = 64

// runtimeCalls runs the work of the runtime's calls that can hang on workers, and ends each call within the
// runtime's deadline. A runtime that gets no response in time disconnects the plugin.
type runtimeCalls struct {
	*daemon
	workers      *deadline.Pool
	timeout      atomic.Int64    // of a call, in nanoseconds
	unresponsive func() []string // the directories that are unresponsive
	running      atomic.Int64
	finished     atomic.Uint64
}

func newRuntimeCalls(d *daemon, unresponsive func() []string) *runtimeCalls {
	c := &runtimeCalls{daemon: d, workers: deadline.NewPool(maxWorkers), unresponsive: unresponsive}
	c.timeout.Store(int64(stub.DefaultRequestTimeout))
	return c
}

// measure counts a call of the runtime and measures its time until end. Every handler starts with
//
//	defer p.calls.measure(telemetry.CreateContainer)()
func (c *runtimeCalls) measure(h telemetry.Handler) (end func()) {
	began := time.Now()
	c.running.Add(1)
	return func() {
		c.counters.Observe(h, time.Since(began))
		c.finished.Add(1)
		c.running.Add(-1)
	}
}

// timeLeft returns the time until the runtime's deadline for the call of ctx.
func (c *runtimeCalls) timeLeft(ctx context.Context) time.Duration {
	limit := time.Duration(c.timeout.Load())
	if until, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(until))
	}
	return limit
}

// runOnWorker runs f, which can hang, on a worker, and waits for it until the runtime's deadline is near. Then it
// returns [deadline.ErrTimeout], and f goes on by itself.
func (c *runtimeCalls) runOnWorker(ctx context.Context, h telemetry.Handler, pod *api.PodSandbox,
	f func() error) error {
	return c.runOrUndo(ctx, h, pod, func(context.Context) error { return f() }, func() {})
}

// runOrUndo is like runOnWorker, but calls undo on the worker if f succeeds after the timeout.
func (c *runtimeCalls) runOrUndo(ctx context.Context, h telemetry.Handler, pod *api.PodSandbox,
	f func(context.Context) error, undo func()) error {
	limit := c.timeLeft(ctx)
	limit -= limit / 8 // the response has to arrive in time
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_, err := deadline.RunOrHandOver(c.workers, limit, func() (_ struct{}, err error) {
		defer c.recoverPanic(&err, pod)
		return struct{}{}, f(ctx)
	}, func(_ struct{}, err error) {
		if err == nil {
			defer c.recoverPanic(&err, pod)
			undo()
		}
	})
	// A refusal that comes in the last moment is still the reason.
	if err != nil && ctx.Err() != nil && isTransient(err) {
		err = deadline.ErrTimeout
	}
	if isTimeout(err) {
		c.counters.CountTimeout(h)
	}
	return err
}

// isTimeout reports whether an error of runOnWorker means that f has not finished.
func isTimeout(err error) bool {
	return errors.Is(err, deadline.ErrTimeout) || errors.Is(err, deadline.ErrBusy)
}

// explainTimeout replaces a timeout of runOnWorker by the error that the runtime reports in an event of the pod.
func (c *runtimeCalls) explainTimeout(err error) error {
	switch {
	case errors.Is(err, deadline.ErrBusy):
		return errdefs.ErrUnavailable.WithMessage(fmt.Sprintf(
			"all %d workers are blocked on host file systems (run \"jackfield doctor\")", maxWorkers))
	case errors.Is(err, deadline.ErrTimeout):
		which := ""
		if faults := c.unresponsive(); len(faults) > 0 {
			which = " (" + strings.Join(faults, "; ") + ")"
		}
		return errdefs.ErrUnavailable.WithMessage(
			"given up before the runtime's deadline: a file system or socket of this host is unresponsive" + which)
	}
	return err
}

const (
	// quietPeriod is how long no call may be under way before the connection is closed. The last response is
	// written meanwhile, and the runtime may have sent a call that is not read yet.
	quietPeriod = 200 * time.Millisecond
	// shortQuietPeriod is the period on a node where calls never pause.
	shortQuietPeriod = 10 * time.Millisecond
)

// waitUntilQuiet returns when no call has been under way for a while. At shutdown it keeps the connection open
// until the calls have their responses: a runtime that loses the plugin while it waits creates the container
// without its injection.
func (c *runtimeCalls) waitUntilQuiet() {
	limit := time.Duration(c.timeout.Load())
	began, lastCall, before := time.Now(), time.Now(), c.finished.Load()
	for ; time.Since(began) < 2*limit; time.Sleep(time.Millisecond) {
		if n := c.finished.Load(); c.running.Load() > 0 || n != before {
			lastCall, before = time.Now(), n
			continue
		}
		quiet := time.Since(lastCall)
		if quiet >= quietPeriod || quiet >= shortQuietPeriod && time.Since(began) >= limit {
			return
		}
	}
}
