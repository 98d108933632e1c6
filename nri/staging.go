// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"runtime/debug"

	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/staging"
)

// openStore opens the state directory, to stage sockets as the configuration says.
func (p *Plugin) openStore(cfg *config.Config) (*staging.Store, error) {
	store, err := staging.Open(p.opts.Host, cfg.StateDir, staging.Options{Mode: staging.Mode(cfg.Sockets.Staging), Watch: true, Events: stagingEvents{p}})
	if err != nil {
		return nil, err
	}
	if st := store.Status(); st.Mode == staging.Directories {
		p.log.WithField("reason", st.Reason).Warn("sockets are delivered as plain directory mounts: one that the host side makes in a directory " +
			"that it replaces is lost to running containers, and networks cannot be added to them")
	}
	return store, nil
}

// stagingEvents counts and logs what the store does by itself.
type stagingEvents struct{ p *Plugin }

func (e stagingEvents) Rebound(r staging.Rebound) {
	e.p.counters.Rebinds.Add()
	e.p.later.do(func() {
		e.p.log.WithField("socket", r.Socket).WithField("containers", r.Containers).WithField("took", r.Took.String()).
			Info("the host side made the socket anew, and the containers have it")
	})
}

func (e stagingEvents) Failed(err error) {
	e.p.counters.StagingFailed.Add()
	e.p.later.do(func() { e.p.log.WithError(err).Warn("sockets of running containers") })
}

// inTime runs f on a worker and waits for it, but not past the time that the
// runtime gives: f goes on by itself then.
func (p *Plugin) inTime(what string, f func()) {
	ctx, cancel := p.budget(context.Background())
	defer cancel()
	done := make(chan struct{})
	accepted := p.workers.do(func() {
		defer close(done)
		defer func() {
			if r := recover(); r != nil {
				p.log.WithField("panic", r).Error(string(debug.Stack()))
			}
		}()
		f()
	})
	if !accepted {
		p.log.Warnf("%s: %d earlier requests still hang on this host's file systems", what, maxHanging)
		return
	}
	select {
	case <-done:
	case <-ctx.Done():
		p.log.Warnf("%s: not done within the runtime's time, and goes on", what)
	}
}
