// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"sync/atomic"
	"time"

	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/staging"
)

// keeper keeps the sockets of containers alive that the OCI hook serves (Podman's, and
// those of runtimes without NRI): a hook has ended by the time that a vswitch makes
// its socket anew. Hooks see that there is a keeper, and bind sockets only then.
type keeper struct {
	p     *Plugin
	dir   string // of the hook's state
	store atomic.Pointer[staging.Store]
	quit  chan struct{}
	done  chan struct{}
}

const (
	// keeperRetry is how long another process that is the keeper still is waited for:
	// the plugin before, which ends.
	keeperRetry = time.Second
	// sweepPatience bounds a look for containers that are gone.
	sweepPatience = 10 * time.Second
)

// newKeeper takes up what hooks made, and what they will make. While it cannot they do
// without. Nobody waits for it.
func newKeeper(p *Plugin, cfg *config.Config) *keeper {
	k := &keeper{p: p, dir: staging.HookDir(cfg.StateDir), quit: make(chan struct{}), done: make(chan struct{})}
	go k.run()
	return k
}

// keepFor has a keeper where this plugin's mounts reach containers, for the state
// directory of a configuration. The lock of changes is held.
func (p *Plugin) keepFor(c *core) {
	dir := ""
	if c.store != nil && c.store.Status().Mode == staging.Mounts {
		dir = c.cfg.StateDir
	}
	if dir == p.keptDir {
		return
	}
	p.stopKeeper()
	if p.keptDir = dir; dir != "" {
		p.kept.Store(newKeeper(p, c.cfg))
	}
}

// stopKeeper ends the keeper. What it kept stays bound.
func (p *Plugin) stopKeeper() {
	k := p.kept.Swap(nil)
	if k == nil {
		return
	}
	close(k.quit)
	if err := closeInTime(func() error {
		<-k.done
		if store := k.store.Load(); store != nil {
			return store.Close()
		}
		return nil
	}); err != nil {
		p.log.WithError(err).Warn("close the state directory of the OCI hook")
	}
}

// open opens the hook's state directory.
func (k *keeper) open() (*staging.Store, error) {
	store, err := staging.Open(k.p.opts.Host, k.dir, staging.Options{
		Owner: staging.HookOwner, Shared: true, Present: true, Watch: true, Events: stagingEvents{k.p}})
	if err != nil {
		return nil, err
	}
	k.store.Store(store)
	return store, nil
}

// run opens the state directory and becomes the keeper. What fails is tried again, ever
// more seldom.
func (k *keeper) run() {
	defer close(k.done)
	var (
		store   *staging.Store
		kept    bool
		retries backoff
		logged  string
	)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-k.quit:
			return
		case <-timer.C:
		}
		var err error
		if store == nil {
			store, err = k.open()
		}
		if err == nil && !kept {
			kept, err = store.Keep()
		}
		switch {
		case err != nil:
			wait := retries.next()
			k.p.counters.StagingFailed.Add()
			if text := err.Error(); text != logged {
				logged = text
				k.p.log.WithError(err).WithField("retry", wait.String()).Warn("sockets of containers that the OCI hook serves are not rebound until this succeeds")
			}
			timer.Reset(wait)
		case !kept:
			timer.Reset(keeperRetry)
		default:
			if logged != "" {
				logged = ""
				k.p.log.Info("sockets of containers that the OCI hook serves are rebound again")
			}
			k.sweep(store)
			timer.Reset(staging.Settled)
		}
	}
}

// sweep removes what is left of containers whose creation failed after the hook, and
// of those whose end no hook was told.
func (k *keeper) sweep(store *staging.Store) {
	n, err := store.Sweep(staging.Settled, sweepPatience)
	if err != nil {
		k.p.counters.CleanupFailed.Add()
		k.p.log.WithError(err).Warn("something of the OCI hook's containers that are gone could not be removed")
	}
	if n > 0 {
		k.p.log.WithField("containers", n).Info("removed what was left of the OCI hook's containers that are gone")
	}
}

// stats counts what the keeper holds.
func (k *keeper) stats() staging.Stats {
	if k == nil {
		return staging.Stats{}
	}
	store := k.store.Load()
	if store == nil {
		return staging.Stats{}
	}
	return store.Stats()
}
