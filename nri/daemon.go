// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"
	"github.com/sirupsen/logrus"

	"github.com/jackfield/jackfield/internal/base/deadline"
	"github.com/jackfield/jackfield/internal/base/retry"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/report/telemetry"
)

// daemon is the environment that all parts of the plugin share: the host, the log, the counters and
// the background goroutines. It refers to no part.
type daemon struct {
	host     hostfs.Root
	log      *logrus.Entry
	counters *telemetry.Counters
	closing  context.Context // ends when the plugin closes
	end      context.CancelFunc
	tasks    sync.WaitGroup // goroutines that end soon after closing
}

func newDaemon(host hostfs.Root, log *logrus.Logger) *daemon {
	d := &daemon{host: host, log: logrus.NewEntry(log), counters: telemetry.NewCounters()}
	d.closing, d.end = context.WithCancel(context.Background())
	return d
}

// A wakeup makes a background goroutine work. Wakeups that are sent while the goroutine works count as one.
type wakeup chan struct{}

func newWakeup() wakeup { return make(wakeup, 1) }

// send never blocks.
func (w wakeup) send() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// runOn calls work in its own goroutine after each wakeup and, unless interval is 0, after each interval,
// until the plugin closes.
func (d *daemon) runOn(wake wakeup, interval time.Duration, work func()) {
	d.tasks.Go(func() {
		var tick <-chan time.Time
		if interval > 0 {
			ticker := time.NewTicker(interval)
			defer ticker.Stop()
			tick = ticker.C
		}
		for {
			select {
			case <-d.closing.Done():
				return
			case <-wake:
			case <-tick:
			}
			work()
		}
	})
}

// repeat calls work until ctx ends, each time after the wait that work returns, or after a growing wait
// if work fails. It counts failures and logs each new failure with the text failing. Work calls succeeded
// as soon as it has succeeded, which repeat logs with the text recovered after a failure.
func (d *daemon) repeat(ctx context.Context, failing, recovered string,
	work func(succeeded func()) (wait time.Duration, err error)) {
	attempts := newRetryState()
	for ctx.Err() == nil {
		wait, err := work(func() {
			if attempts.recordSuccess() {
				d.log.Info(recovered)
			}
		})
		if err != nil && ctx.Err() == nil {
			var isNew bool
			wait, isNew = attempts.recordFailure(err)
			d.counters.StagingFailed.Add(1)
			if isNew {
				d.log.WithError(err).WithField("retry", wait.String()).Warn(failing)
			}
		}
		deadline.Sleep(ctx, wait)
	}
}

// recoverPanic is deferred by functions that return *err: it counts and logs a panic and turns it into the
// error. pod is nil for work that belongs to no single pod.
func (d *daemon) recoverPanic(err *error, pod *api.PodSandbox) {
	if r := recover(); r != nil {
		d.counters.Panics.Add(1)
		d.podLog(pod).WithField("panic", r).Error(string(debug.Stack()))
		*err = errdefs.ErrInternal.WithMessage(fmt.Sprintf("internal error, see the plugin's log: %v", r))
	}
}

// reportRemoval counts and logs the error of an incomplete removal of its owner's state; nil is none.
func (d *daemon) reportRemoval(log *logrus.Entry, owner string, err error) {
	if err != nil {
		d.counters.CleanupFailed.Add(1)
		log.WithError(err).Warn("cannot remove all state of " + owner)
	}
}

// podLog returns the log with the fields that identify a pod; pod can be nil.
func (d *daemon) podLog(pod *api.PodSandbox) *logrus.Entry {
	if pod == nil {
		return d.log
	}
	return d.log.WithFields(logrus.Fields{"pod": pod.GetNamespace() + "/" + pod.GetName(), "sandbox": pod.GetId()})
}

func (d *daemon) containerLog(pod *api.PodSandbox, c *api.Container) *logrus.Entry {
	return d.podLog(pod).WithFields(logrus.Fields{"container": containerName(c), "containerID": c.GetId()})
}

// withRepeats adds the number of repetitions to a throttled line.
func withRepeats(log *logrus.Entry, repeats int) *logrus.Entry {
	if repeats == 0 {
		return log
	}
	return log.WithField("repeats", repeats)
}

// closeTimeout bounds how long the end of the process waits for a file system.
const closeTimeout = 2 * time.Second

// closeWithin runs f and waits for it. A call that hangs ends with the process.
func closeWithin(f func() error) error {
	err := deadline.Within(closeTimeout, f)
	if errors.Is(err, deadline.ErrTimeout) {
		return nil
	}
	return err
}

// startupTimeout bounds how long each step of applying a configuration waits for a directory that can
// hang. A runtime that starts the plugin expects it to register within five seconds.
const startupTimeout = 500 * time.Millisecond

// waitAtStart runs f and waits for it until startupTimeout.
func waitAtStart(f func()) {
	_ = deadline.Within(startupTimeout, func() error { f(); return nil })
}

// retryState belongs to work that is repeated until it succeeds.
type retryState struct {
	backoff retry.Backoff
	fault   string // of the last attempt; "" after a success
}

func newRetryState() retryState {
	return retryState{backoff: retry.Backoff{First: time.Second, Last: time.Minute}}
}

// recordFailure returns the wait before the next attempt, and whether the failure differs from the last one
// and is therefore logged.
func (r *retryState) recordFailure(err error) (wait time.Duration, isNew bool) {
	isNew = r.fault != err.Error()
	r.fault = err.Error()
	return r.backoff.NextWait(), isNew
}

// recordSuccess reports whether the last attempt failed.
func (r *retryState) recordSuccess() (failedBefore bool) {
	failedBefore = r.fault != ""
	*r = newRetryState()
	return failedBefore
}
