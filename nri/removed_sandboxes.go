// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/port/attach"
	"github.com/jackfield/jackfield/internal/port/ipam"
)

const (
	// sweepInterval is the time between two sweeps without a removed sandbox.
	sweepInterval = time.Minute
	// abandonedAge is the least age of a record whose sandbox the runtime does not list. It is longer than any ADD.
	abandonedAge = 5 * time.Minute
	// removalTimeout bounds the removal of one sandbox's attachments.
	removalTimeout = 30 * time.Second
)

// removedSandboxes removes the attachments that removed sandboxes left behind, and retries until it
// succeeds. The runtime runs CNI DEL before it removes a sandbox, so usually nothing is left.
type removedSandboxes struct {
	*daemon
	current func() *core
	live    func() (ids map[string]bool, known bool)
	wake    wakeup

	mu     sync.Mutex
	faults map[string]string // by sandbox: the error of the last attempt, "" before the first
}

// newRemovedSandboxes returns the removal of attachments that removed sandboxes left behind. It runs when it is woken,
// and every sweepInterval.
func newRemovedSandboxes(
	d *daemon, current func() *core, live func() (ids map[string]bool, known bool)) *removedSandboxes {
	r := &removedSandboxes{daemon: d, current: current, live: live, wake: newWakeup(), faults: make(map[string]string)}
	d.runOn(r.wake, sweepInterval, r.sweep)
	return r
}

// add schedules the removal of a sandbox's attachments.
func (r *removedSandboxes) add(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults[id] = ""
	r.wake.send()
}

func (r *removedSandboxes) list() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.faults))
}

// sweep removes the attachments of removed sandboxes. A sandbox counts as removed if the runtime has reported
// its removal, or if the runtime's list omits the sandbox and its network namespace is gone. A living sandbox is
// never swept.
func (r *removedSandboxes) sweep() {
	core := r.current()
	if core == nil {
		return
	}
	w := lineLogger{r.log}
	s := &attach.Sweeper{Root: r.host, Config: core.cfg, Log: w, Program: "jackfield-nri",
		Release: ipam.ReleaseAbandoned(w)}
	live, known := r.live()
	if known {
		r.addAbandoned(s, live)
	}
	for _, id := range r.list() {
		if live[id] {
			r.finish(id, nil)
			continue
		}
		ctx, cancel := context.WithTimeout(r.closing, removalTimeout)
		err := s.RemoveSandbox(ctx, id)
		cancel()
		if r.finish(id, err) {
			r.counters.CleanupFailed.Add(1)
			r.log.WithError(err).WithField("sandbox", id).
				Warn("cannot remove all attachments of a removed sandbox; trying again every minute")
		}
	}
}

// addAbandoned adds the sandboxes that were removed while the plugin was not running.
func (r *removedSandboxes) addAbandoned(s *attach.Sweeper, live map[string]bool) {
	keys, err := s.Abandoned(func(id string) bool { return live[id] }, time.Now().Add(-abandonedAge))
	if err != nil && !errors.Is(err, r.closing.Err()) {
		r.log.WithError(err).Debug("cannot list the records of attachments")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range keys {
		r.faults[key.ContainerID] += "" // keeps the error of an earlier attempt
	}
}

// finish drops a sandbox after its removal, or keeps it with the error. It reports whether the error is new.
func (r *removedSandboxes) finish(id string, err error) (isNew bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		delete(r.faults, id)
		return false
	}
	isNew = r.faults[id] != err.Error()
	r.faults[id] = err.Error()
	return isNew
}

// lineLogger logs each Write as one line.
type lineLogger struct{ log *logrus.Entry }

func (l lineLogger) Write(line []byte) (int, error) {
	l.log.Info(diag.Excerpt(strings.TrimSpace(string(line)), diag.MaxExcerpt))
	return len(line), nil
}
