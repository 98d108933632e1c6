// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/dircheck"
	"github.com/jackfield/jackfield/internal/telemetry"
	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/staging"
)

// A state directory that is unresponsive when the plugin starts is opened in the background.
// What the runtime reports meanwhile is deferred, and done before anything new is created in
// the directory.

const (
	// reopenInterval is how long after a failure the state directory is opened again.
	reopenInterval = time.Second
	// maxDeferred bounds the deferred cleanups. The next start cleans up what is beyond it.
	maxDeferred = 1 << 16
)

// stateDir is the state directory while it cannot be used, and the rebinder of the OCI hook's.
type stateDir struct {
	mu       sync.Mutex
	deferred []func(*staging.Store)
	fault    error     // why the directory cannot be used; nil while it is unresponsive
	since    time.Time // when it was first opened

	rebinder    atomic.Pointer[rebinder]
	rebinderDir string // the state directory it belongs to; guarded by configuration.changing
}

type openedStore struct {
	store *staging.Store
	err   error
}

// openStore opens the state directory and stages sockets as the configuration says.
func (p *Plugin) openStore(cfg *config.Config) (*staging.Store, error) {
	store, err := staging.Open(p.opts.Host, cfg.StateDir, staging.Options{Mode: staging.Mode(cfg.Sockets.Staging), Watch: true, DirectorySize: cfg.Sockets.DirectoryBytes(), Events: stagingEvents{p}})
	if err != nil {
		return nil, err
	}
	if st := store.Status(); st.Mode == staging.ModeDirectory {
		p.log.WithField("reason", st.Detail).Warn("sockets are delivered as plain directory mounts: when the host re-creates a socket in a directory " +
			"that it replaces, or that the policy does not grant as a whole (DIR/**), running containers lose the socket; networks cannot be added to running containers")
	}
	// In the background: an unresponsive socket root does not delay the start.
	go func() {
		for _, risk := range staging.CheckRootMounts(p.opts.Host, cfg.StateDir, cfg.Sockets.Roots, cfg.Sockets.DirectoryBytes() > 0) {
			p.log.WithField("roots", risk.Roots).WithField("remedy", risk.Remedy).Warn(risk.Found)
		}
	}()
	return store, nil
}

// openStoreWithin opens the state directory. While the directory is unresponsive the store is
// nil, without an error, and the directory is opened in the background.
func (p *Plugin) openStoreWithin(cfg *config.Config, w startupWait) (*staging.Store, error) {
	opened := make(chan openedStore, 1)
	go func() {
		store, err := p.openStore(cfg)
		opened <- openedStore{store, err}
	}()
	select {
	case o := <-opened:
		return o.store, o.err
	case <-time.After(w.timeLeft()):
	}
	p.state.mu.Lock()
	p.state.deferred, p.state.fault, p.state.since = nil, nil, time.Now()
	p.state.mu.Unlock()
	p.log.WithField("directory", cfg.StateDir).Error("the state directory is unresponsive: the plugin starts without it, and refuses containers with sockets or devices of networks until it answers")
	go func() { p.useLateStore(cfg, <-opened) }()
	return nil, nil
}

// useLateStore puts a state directory that answers late into use. If that fails it opens the
// directory again, until the plugin is closed.
func (p *Plugin) useLateStore(cfg *config.Config, o openedStore) {
	for {
		if o.err == nil {
			o.err = p.storeOpened(cfg, o.store)
		}
		if o.err == nil {
			return
		}
		p.state.mu.Lock()
		if p.state.fault == nil || p.state.fault.Error() != o.err.Error() {
			p.log.WithError(o.err).Error("the state directory answers and cannot be used; trying again every second")
		}
		p.state.fault = o.err
		p.state.mu.Unlock()
		sleep(p.closing, reopenInterval)
		if p.closing.Err() != nil {
			return
		}
		o.store, o.err = p.openStore(cfg)
	}
}

// storeOpened puts a store into use, after the deferred cleanups. A store that is not used is
// closed; after an error it has to be opened again.
func (p *Plugin) storeOpened(cfg *config.Config, store *staging.Store) error {
	p.config.changing.Lock()
	defer p.config.changing.Unlock()
	old := p.config.core.Load()
	if old.store != nil || checkSameStore(old.cfg, cfg) != nil || p.closing.Err() != nil {
		// The runtime handed over a configuration with another state directory.
		if err := store.Close(); err != nil {
			p.log.WithError(err).Warn("cannot close a state directory that is not used")
		}
		return nil
	}
	now := &core{engine: old.engine, store: store, cfg: old.cfg, staged: store.Status().Mode == staging.ModeMount}
	if now.staged != old.staged {
		engine, err := p.newEngine(old.cfg, now.staged, newStartupWait())
		if err != nil {
			return errors.Join(fmt.Errorf("use the configuration in force with the state directory: %w", err), store.Close())
		}
		now.engine = engine
	}
	p.runDeferred(now)
	if now.engine != old.engine {
		p.retireCore(old)
	}
	p.log.WithField("directory", cfg.StateDir).Info("the state directory is in use")
	p.containers.hotplug.followConfig(now)
	p.containers.hotplug.markAllDirty()
	p.startRebinder(now)
	return nil
}

// runDeferred does what was deferred, and puts the core with the store into force.
func (p *Plugin) runDeferred(now *core) {
	for {
		p.state.mu.Lock()
		deferred := p.state.deferred
		p.state.deferred = nil
		if len(deferred) == 0 {
			p.config.core.Store(now)
			p.state.mu.Unlock()
			return
		}
		p.state.mu.Unlock()
		for _, f := range deferred {
			f(now.store)
		}
	}
}

// runInStore runs f in the state directory, within the runtime's time or beyond it, or as soon
// as the directory can be used. What f leaves behind is removed when the plugin synchronizes
// the next time.
func (p *Plugin) runInStore(ctx context.Context, h telemetry.Handler, f func(*staging.Store)) {
	store := p.config.core.Load().store
	if store == nil {
		if p.deferCleanup(h, f) {
			return
		}
		store = p.config.core.Load().store
	}
	if err := p.runOnWorker(ctx, h, p.log, func() error { f(store); return nil }); err != nil {
		p.log.WithError(err).Warnf("%s was answered before its work was done", h)
	}
}

// deferCleanup keeps f until the state directory can be used. It returns false where it can.
func (p *Plugin) deferCleanup(h telemetry.Handler, f func(*staging.Store)) bool {
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	if p.config.core.Load().store != nil {
		return false
	}
	if h == telemetry.Synchronize {
		// It reports everything that lives, and so replaces what came before.
		p.state.deferred = nil
	}
	if len(p.state.deferred) >= maxDeferred {
		p.counters.CleanupFailed.Add(1)
		return true
	}
	p.state.deferred = append(p.state.deferred, f)
	return true
}

// storeFault is why a container that needs the state directory is refused; nil where the
// directory can be used.
func (p *Plugin) storeFault(c *core) error {
	if c.store != nil {
		return nil
	}
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	if p.state.fault != nil {
		return fmt.Errorf("cannot deliver sockets and devices.json: state directory %s cannot be used: %w", c.cfg.StateDir, errors.Join(p.state.fault, errdefs.ErrUnavailable))
	}
	return fmt.Errorf("cannot deliver sockets and devices.json: %s: %w", dircheck.Directory{Directory: config.Directory{Path: c.cfg.StateDir, Use: "state"}, Since: p.state.since}.Fault(), errdefs.ErrUnavailable)
}

// stagingEvents counts and logs what the store does by itself.
type stagingEvents struct{ p *Plugin }

func (e stagingEvents) Rebound(r staging.Rebound) {
	e.p.counters.Rebinds.Add(1)
	if r.Throttled {
		return
	}
	e.p.log.WithField("socket", r.Socket).WithField("containers", r.Containers).WithField("took", r.Took.String()).
		Info("the host re-created the socket; rebound it in the containers")
}

func (e stagingEvents) Failed(err error) {
	e.p.counters.StagingFailed.Add(1)
	e.p.log.WithError(err).Warn("cannot update the sockets of running containers")
}

// reportDirectory logs that a configured directory became unresponsive, or answers again.
func (p *Plugin) reportDirectory(d dircheck.Directory, was time.Duration) {
	log := p.log.WithField("directory", d.Path).WithField("use", d.Use)
	if !d.Since.IsZero() {
		log.Error("a directory is unresponsive: containers that need it are refused until it answers; check the file system mounted there")
		return
	}
	log.WithField("after", was.Round(time.Millisecond).String()).Info("the directory answers again")
	p.containers.hotplug.markAllDirty() // what changed meanwhile
}

// rebinder rebinds the sockets of containers that the OCI hook serves (Podman's, and those of
// runtimes without NRI): a hook has ended by the time a vswitch re-creates its socket. Hooks
// see that there is a rebinder, and bind sockets only then.
type rebinder struct {
	p     *Plugin
	dir   string // the hook's state directory
	store atomic.Pointer[staging.Store]
	quit  context.Context
	end   context.CancelFunc
	done  chan struct{}
}

const (
	// rebinderRetry is the time between two attempts to become the rebinder while another
	// process is: an earlier plugin that ends.
	rebinderRetry = time.Second
	// sweepTimeout bounds a search for containers that are gone.
	sweepTimeout = 10 * time.Second
)

// newRebinder takes over what hooks created, and what they will create.
func newRebinder(p *Plugin, cfg *config.Config) *rebinder {
	r := &rebinder{p: p, dir: staging.HookDir(cfg.StateDir), done: make(chan struct{})}
	r.quit, r.end = context.WithCancel(context.Background())
	go r.rebindUntilQuit()
	return r
}

// startRebinder starts a rebinder for the configuration's state directory, where this
// plugin's mounts reach containers. configuration.changing is held.
func (p *Plugin) startRebinder(c *core) {
	dir := ""
	if c.store != nil && c.store.Status().Mode == staging.ModeMount {
		dir = c.cfg.StateDir
	}
	if dir == p.state.rebinderDir {
		return
	}
	p.stopRebinder()
	if p.state.rebinderDir = dir; dir != "" {
		p.state.rebinder.Store(newRebinder(p, c.cfg))
	}
}

// stopRebinder ends the rebinder. Its sockets stay bound.
func (p *Plugin) stopRebinder() {
	r := p.state.rebinder.Swap(nil)
	if r == nil {
		return
	}
	r.end()
	err := closeWithin(func() error {
		<-r.done
		if store := r.store.Load(); store != nil {
			return store.Close()
		}
		return nil
	})
	if err != nil {
		p.log.WithError(err).Warn("cannot close the state directory of the OCI hook")
	}
}

// openStore opens the hook's state directory.
func (r *rebinder) openStore() (*staging.Store, error) {
	store, err := staging.Open(r.p.opts.Host, r.dir, staging.Options{
		Owner: staging.HookOwner, Shared: true, NoCreate: true, Watch: true, Events: stagingEvents{r.p}})
	if err != nil {
		return nil, err
	}
	r.store.Store(store)
	return store, nil
}

// rebindUntilQuit opens the state directory and becomes the rebinder. After a failure it tries again, with
// a growing interval.
func (r *rebinder) rebindUntilQuit() {
	defer close(r.done)
	var (
		store   *staging.Store
		active  bool
		retries backoff
		logged  string
		wait    time.Duration
	)
	for ; r.quit.Err() == nil; sleep(r.quit, wait) {
		var err error
		if store == nil {
			store, err = r.openStore()
		}
		if err == nil && !active {
			active, err = store.BecomeRebinder()
		}
		switch {
		case err != nil:
			wait = retries.nextWait()
			r.p.counters.StagingFailed.Add(1)
			if text := err.Error(); text != logged {
				logged = text
				r.p.log.WithError(err).WithField("retry", wait.String()).Warn("sockets of containers that the OCI hook serves are not rebound until this succeeds")
			}
		case !active:
			wait = rebinderRetry
		default:
			if logged != "" {
				logged = ""
				r.p.log.Info("sockets of containers that the OCI hook serves are rebound again")
			}
			r.sweepOrphans(store)
			wait = staging.MinOrphanAge
		}
	}
}

// sweepOrphans removes the state of containers whose creation failed after the hook ran, and of those
// whose end was reported to no hook.
func (r *rebinder) sweepOrphans(store *staging.Store) {
	n, err := store.Sweep(staging.MinOrphanAge, sweepTimeout)
	r.p.reportRemoval(r.p.log, "the OCI hook's containers that are gone", err)
	if n > 0 {
		r.p.log.WithField("containers", n).Info("removed the state of the OCI hook's containers that are gone")
	}
}

// stores are the plugin's state directory and that of the OCI hook's containers, as far as they are open.
func (p *Plugin) stores(c *core) []*staging.Store {
	var open []*staging.Store
	if c.store != nil {
		open = append(open, c.store)
	}
	if r := p.state.rebinder.Load(); r != nil {
		if hooks := r.store.Load(); hooks != nil {
			open = append(open, hooks)
		}
	}
	return open
}
