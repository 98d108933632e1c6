// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/staging"
	"github.com/jackfield/jackfield/pkg/telemetry"
)

const (
	// startTime is how long putting a configuration into force waits for the host's
	// directories altogether, and stepTime how long it waits for each at least: a
	// runtime that starts the plugin has it register within five seconds.
	startTime, stepTime = time.Second, 100 * time.Millisecond
	// openAgain is how long after a failure the state directory is tried again.
	openAgain = time.Second
	// maxOwed bounds what is kept to be done in a state directory that does not
	// answer. What is beyond it the next start cleans up.
	maxOwed = 1 << 16
)

// waits bounds the waiting for directories that may hang.
type waits struct{ until time.Time }

func newWaits() waits { return waits{time.Now().Add(startTime)} }

func (w waits) left() time.Duration { return max(stepTime, time.Until(w.until)) }

// do runs f, and reports whether it has come to its end in time. One that has not
// goes on by itself.
func (w waits) do(f func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	timer := time.NewTimer(w.left())
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// lateStore is what becomes of a state directory that does not answer when the
// plugin starts: it is waited for in the background. What the runtime tells
// meanwhile is done when it is there, before anything new is made in it.
type lateStore struct {
	quit chan struct{}

	mu    sync.Mutex
	owed  []func(*staging.Store)
	why   error // it is not there; nil for no answer
	since time.Time
}

type openedStore struct {
	store *staging.Store
	err   error
}

// openInTime opens the state directory; nil, without an error, is one that is waited for.
func (p *Plugin) openInTime(cfg *config.Config, w waits) (*staging.Store, error) {
	opened := p.opening(cfg)
	timer := time.NewTimer(w.left())
	defer timer.Stop()
	select {
	case o := <-opened:
		return o.store, o.err
	case <-timer.C:
	}
	p.late.mu.Lock()
	p.late.owed, p.late.why, p.late.since = nil, nil, time.Now()
	p.late.mu.Unlock()
	p.log.WithField("directory", cfg.StateDir).Error("the state directory does not answer: the plugin starts without it, and containers that get sockets, or devices of networks, are refused until it does")
	go p.await(cfg, opened)
	return nil, nil
}

func (p *Plugin) opening(cfg *config.Config) <-chan openedStore {
	opened := make(chan openedStore, 1)
	go func() {
		store, err := p.openStore(cfg)
		opened <- openedStore{store, err}
	}()
	return opened
}

// await waits for the state directory, and puts it into use.
func (p *Plugin) await(cfg *config.Config, opened <-chan openedStore) {
	for {
		var o openedStore
		select {
		case o = <-opened:
		case <-p.late.quit:
			go func() {
				// Whoever opens it after all, closes it.
				if o := <-opened; o.err == nil {
					_ = o.store.Close()
				}
			}()
			return
		}
		if o.err == nil {
			if o.err = p.arrived(cfg, o.store); o.err == nil {
				return
			}
		}
		p.late.mu.Lock()
		if p.late.why == nil || p.late.why.Error() != o.err.Error() {
			p.log.WithError(o.err).Error("the state directory answers, and cannot be used; it is tried again every second")
		}
		p.late.why = o.err
		p.late.mu.Unlock()
		select {
		case <-time.After(openAgain):
			opened = p.opening(cfg)
		case <-p.late.quit:
			return
		}
	}
}

// arrived puts a store into use that was waited for, once all is done that was owed
// to it. A store that is not used is closed; an error says that it has to be opened
// again.
func (p *Plugin) arrived(cfg *config.Config, store *staging.Store) error {
	p.changing.Lock()
	defer p.changing.Unlock()
	old := p.core.Load()
	if old.store != nil || keepsStore(old.cfg, cfg) != nil || p.late.ended() {
		// The runtime handed over a configuration with another one.
		if err := store.Close(); err != nil {
			p.log.WithError(err).Warn("close a state directory that is not used")
		}
		return nil
	}
	now := &core{engine: old.engine, store: store, cfg: old.cfg, staged: store.Status().Mode == staging.Mounts}
	if now.staged != old.staged {
		engine, err := p.newEngine(old.cfg, now.staged, newWaits())
		if err != nil {
			return errors.Join(fmt.Errorf("use the configuration in force with the state directory: %w", err), store.Close())
		}
		now.engine = engine
	}
	for {
		p.late.mu.Lock()
		owed := p.late.owed
		p.late.owed = nil
		if len(owed) == 0 {
			p.core.Store(now)
			p.late.mu.Unlock()
			break
		}
		p.late.mu.Unlock()
		for _, f := range owed {
			f(store)
		}
	}
	if now.engine != old.engine {
		p.retire(old)
	}
	p.log.WithField("directory", cfg.StateDir).Info("the state directory is in use")
	p.hotplug.watch(now, newWaits())
	p.hotplug.changed("")
	p.keepFor(now)
	return nil
}

func (l *lateStore) ended() bool {
	select {
	case <-l.quit:
		return true
	default:
		return false
	}
}

// inStore does f in the state directory, in the runtime's time or beyond it, or as
// soon as the directory is there.
func (p *Plugin) inStore(ctx context.Context, h telemetry.Handler, f func(*staging.Store)) {
	store := p.core.Load().store
	if store == nil {
		if p.owe(h, f) {
			return
		}
		store = p.core.Load().store
	}
	p.inTime(ctx, h, func() { f(store) })
}

// owe keeps what is to be done in the state directory; false when that is there.
func (p *Plugin) owe(h telemetry.Handler, f func(*staging.Store)) bool {
	p.late.mu.Lock()
	defer p.late.mu.Unlock()
	if p.core.Load().store != nil {
		return false
	}
	if h == telemetry.Synchronize {
		// It says what lives: whatever came before is in it.
		p.late.owed = nil
	}
	if len(p.late.owed) >= maxOwed {
		p.counters.CleanupFailed.Add()
		return true
	}
	p.late.owed = append(p.late.owed, f)
	return true
}

// noStoreOf is why a container that needs the state directory is refused; nil where
// it is there.
func (p *Plugin) noStoreOf(c *core) error {
	if c.store != nil {
		return nil
	}
	cfg := c.cfg
	p.late.mu.Lock()
	defer p.late.mu.Unlock()
	if p.late.why != nil {
		return fmt.Errorf("the state directory %s cannot be used, without which there are no sockets and no devices.json: %w", cfg.StateDir, errors.Join(p.late.why, errdefs.ErrUnavailable))
	}
	return fmt.Errorf("the state directory %s does not answer since %s, without which there are no sockets and no devices.json; see what it is mounted from: %w",
		cfg.StateDir, p.late.since.UTC().Format(time.TimeOnly+"Z"), errdefs.ErrUnavailable)
}
