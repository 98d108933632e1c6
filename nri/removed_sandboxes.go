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

	"github.com/jackfield/jackfield/internal/adapter/cni"
	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/port/attach"
	"github.com/jackfield/jackfield/internal/port/record"
)

const (
	// sweepInterval is the time between two sweeps without a removed sandbox.
	sweepInterval = time.Minute
	// abandonedAge is the least age of a record whose sandbox the runtime does not list. It is longer than any ADD.
	abandonedAge = 5 * time.Minute
	// removalTimeout bounds the removal of one sandbox's attachments.
	removalTimeout = 30 * time.Second
)

// removedSandboxes are the sandboxes that the runtime has removed, until everything of their attachments is removed. The
// runtime runs CNI DEL before it removes a sandbox, so that usually nothing is left.
type removedSandboxes struct {
	wakeSweep func() // triggers sweepRemoved

	mu     sync.Mutex
	faults map[string]string // by sandbox: the error of the last attempt, "" before the first
}

func (r *removedSandboxes) add(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.faults == nil {
		r.faults = map[string]string{}
	}
	r.faults[id] = ""
	r.wakeSweep()
}

func (r *removedSandboxes) list() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.faults))
}

// finish drops a sandbox of which nothing is left, or keeps it with the error. It reports whether the error is new.
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

// lineLogger logs what is written to it, a line a call.
type lineLogger struct{ log *logrus.Entry }

func (l lineLogger) Write(line []byte) (int, error) {
	l.log.Info(diag.Excerpt(strings.TrimSpace(string(line)), diag.MaxExcerpt))
	return len(line), nil
}

// newSweeper returns a sweeper for the configuration in force, nil for none.
func (p *Plugin) newSweeper(log *logrus.Entry) *attach.Sweeper {
	core := p.config.core.Load()
	if core == nil {
		return nil
	}
	w := lineLogger{log}
	return &attach.Sweeper{Root: p.opts.Host, Config: core.cfg, Log: w, Program: "jackfield-nri",
		Release: func(ctx context.Context, key record.Key, i *record.IPAM) error {
			return cni.ReleaseRecorded(ctx, key, i, []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, w)
		}}
}

// sweepRemoved removes the attachments of removed sandboxes. A sandbox counts as removed if the runtime has reported its
// removal, or if the runtime's list omits the sandbox and its network namespace is gone. A living sandbox is never swept.
func (p *Plugin) sweepRemoved() {
	s := p.newSweeper(p.log)
	if s == nil {
		return
	}
	live, known := p.containers.liveSandboxes()
	if known {
		p.addAbandoned(s, live)
	}
	for _, id := range p.containers.removed.list() {
		if live[id] {
			p.containers.removed.finish(id, nil)
			continue
		}
		ctx, cancel := context.WithTimeout(p.closing, removalTimeout)
		err := s.RemoveSandbox(ctx, id)
		cancel()
		if p.containers.removed.finish(id, err) {
			p.counters.CleanupFailed.Add(1)
			p.log.WithError(err).WithField("sandbox", id).Warn("cannot remove all attachments of a removed sandbox; trying again every minute")
		}
	}
}

// addAbandoned adds the sandboxes whose removal the runtime reported while the plugin was not running.
func (p *Plugin) addAbandoned(s *attach.Sweeper, live map[string]bool) {
	keys, err := s.Abandoned(func(id string) bool { return live[id] }, time.Now().Add(-abandonedAge))
	if err != nil && !errors.Is(err, p.closing.Err()) {
		p.log.WithError(err).Debug("cannot list the records of attachments")
	}
	r := &p.containers.removed
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range keys {
		if r.faults == nil {
			r.faults = map[string]string{}
		}
		if _, isKnown := r.faults[key.ContainerID]; !isKnown {
			r.faults[key.ContainerID] = ""
		}
	}
}
