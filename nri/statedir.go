// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/deadline"
	"github.com/jackfield/jackfield/internal/dircheck"
	"github.com/jackfield/jackfield/internal/status"
	"github.com/jackfield/jackfield/internal/telemetry"
	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/staging"
)

// reopenInterval is how long after a failure the state directory is opened again.
const reopenInterval = time.Second

// stateDir is the state directory. Its path and mode stay the same for as long as the plugin runs:
// see checkSameStore. A directory that is unresponsive when the plugin starts is opened in the
// background.
type stateDir struct {
	store  atomic.Pointer[staging.Store] // nil while the directory cannot be used
	staged atomic.Bool                   // sockets are bound in the staging directory
	hooks  atomic.Pointer[staging.Store] // of the OCI hook's containers; nil while it is not open
	since  time.Time                     // when it was first opened; constant

	wakePostponed func() // has runPostponed called

	mu        sync.Mutex
	fault     error                  // why the directory cannot be used; nil while it is unresponsive
	postponed []func(*staging.Store) // work of calls for which no worker was free
}

// openStateDir opens the state directory of the first configuration.
func (p *Plugin) openStateDir(cfg *config.Config) error {
	// The most likely mode, until the directory is open.
	mode := staging.Mode(cfg.Sockets.Staging)
	p.state.staged.Store(mode == staging.ModeMount || mode != staging.ModeDirectory && p.opts.Host.IsLive())
	p.state.since = time.Now()
	store, err := deadline.RunOrHandOver(nil, startupTimeout, func() (*staging.Store, error) { return p.openStore(cfg) },
		func(store *staging.Store, err error) { p.useLateStore(cfg, store, err) })
	if errors.Is(err, deadline.ErrTimeout) {
		p.log.WithField("directory", cfg.StateDir).Error("the state directory is unresponsive: the plugin starts without it, and refuses containers with sockets or devices of networks until it answers")
		return nil
	}
	if err == nil {
		p.useStore(cfg, store)
	}
	return err
}

// openStore opens the state directory and stages sockets as the configuration says.
func (p *Plugin) openStore(cfg *config.Config) (*staging.Store, error) {
	store, err := staging.Open(p.opts.Host, cfg.StateDir, staging.Options{Mode: staging.Mode(cfg.Sockets.Staging),
		Watch: true, Exclusive: true, DirectorySize: cfg.Sockets.DirectoryBytes(), Events: stagingEvents{p}})
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

// useLateStore puts a state directory that answers late into use. After a failure to open it, it
// opens the directory again, until the plugin is closed.
func (p *Plugin) useLateStore(cfg *config.Config, store *staging.Store, err error) {
	var attempts retryState
	for ; err != nil; store, err = p.openStore(cfg) {
		if _, isNew := attempts.recordFailure(err); isNew {
			p.log.WithError(err).Error("the state directory answers and cannot be used; trying again every second")
		}
		p.state.mu.Lock()
		p.state.fault = err
		p.state.mu.Unlock()
		deadline.Sleep(p.closing, reopenInterval)
		if p.closing.Err() != nil {
			return
		}
	}
	// What ended while the directory was not open is removed before anything new is created there,
	// and then what ended during that.
	p.retainLiving(store, time.Now())
	opened := time.Now()
	p.useStore(cfg, store)
	p.retainLiving(store, opened)
	p.log.WithField("directory", cfg.StateDir).Info("the state directory is in use")
	p.containers.hotplug.followConfig()
}

// useStore puts an open store into use, unless the plugin is closed meanwhile.
func (p *Plugin) useStore(cfg *config.Config, store *staging.Store) {
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	if p.closing.Err() != nil {
		if err := store.Close(); err != nil {
			p.log.WithError(err).Warn("cannot close the state directory")
		}
		return
	}
	staged := store.Status().Mode == staging.ModeMount
	p.state.staged.Store(staged)
	p.state.store.Store(store)
	if staged {
		p.tasks.Go(func() { p.rebindHookSockets(staging.HookDir(cfg.StateDir)) })
	}
}

// closeStores closes the open stores. The sockets in them stay bound.
func (s *stateDir) closeStores() error {
	var errs []error
	if store := s.store.Load(); store != nil {
		errs = append(errs, store.Close(), store.UnmountIfEmpty())
	}
	if hooks := s.hooks.Load(); hooks != nil {
		errs = append(errs, hooks.Close())
	}
	return errors.Join(errs...)
}

// openStores returns the plugin's store and that of the OCI hook's containers, as far as they are open.
func (s *stateDir) openStores() []*staging.Store {
	return slices.DeleteFunc([]*staging.Store{s.store.Load(), s.hooks.Load()}, func(store *staging.Store) bool { return store == nil })
}

// retainLiving removes what is kept for sandboxes and containers that are gone, as far as the
// runtime has reported what lives. What was created after asOf stays.
func (p *Plugin) retainLiving(store *staging.Store, asOf time.Time) {
	if p.runtime.unsynchronized.Load() {
		p.containers.wakeRestore()
	}
	if _, known := p.containers.liveSandboxes(); !known {
		return
	}
	p.reportRemoval(p.log, "containers that are gone", store.Retain(asOf, p.containers.hasSandbox, p.containers.hasContainer))
	p.containers.hotplug.synchronize(store)
}

// runInStore runs f in the state directory, within the runtime's time or beyond it. While the
// directory cannot be used f is left out: retainLiving removes what it would have removed.
func (p *Plugin) runInStore(ctx context.Context, h telemetry.Handler, f func(*staging.Store)) {
	store := p.state.store.Load()
	if store == nil {
		return
	}
	err := p.runOnWorker(ctx, h, nil, func() error { f(store); return nil })
	if err == nil {
		return
	}
	p.log.WithError(err).Warnf("%s was answered before its work was done", h)
	if errors.Is(err, deadline.ErrBusy) {
		p.state.mu.Lock()
		p.state.postponed = append(p.state.postponed, f)
		p.state.mu.Unlock()
		p.state.wakePostponed()
	}
}

// runPostponed does the work of calls for which no worker was free. It needs none: the runtime does not wait.
func (p *Plugin) runPostponed() {
	p.state.mu.Lock()
	postponed := p.state.postponed
	p.state.postponed = nil
	p.state.mu.Unlock()
	for _, f := range postponed {
		func() {
			defer p.recoverPanic(new(error), nil)
			f(p.state.store.Load())
		}()
	}
}

// storeFault is why a container that needs the state directory is refused while it cannot be used.
func (p *Plugin) storeFault(cfg *config.Config) error {
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	if p.state.fault != nil {
		return fmt.Errorf("cannot deliver sockets and devices.json: state directory %s cannot be used: %w", cfg.StateDir, errors.Join(p.state.fault, errdefs.ErrUnavailable))
	}
	return fmt.Errorf("cannot deliver sockets and devices.json: %s: %w", dircheck.Directory{Directory: config.Directory{Path: cfg.StateDir, Use: "state"}, Since: p.state.since}.Fault(), errdefs.ErrUnavailable)
}

// stagingEvents counts and logs what the store does by itself.
type stagingEvents struct{ p *Plugin }

func (e stagingEvents) Rebound(r staging.Rebound) {
	message := "the host created the socket; bound it in the containers"
	if r.Again > 0 {
		message = "the host re-created the socket; rebound it in the containers"
		e.p.counters.Rebinds.Add(1)
	}
	if r.Throttled {
		return
	}
	e.p.log.WithField("socket", r.Socket).WithField("containers", r.Containers).WithField("took", r.Took.String()).
		Info(message)
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

const (
	// rebinderRetry is the time between two attempts to become the rebinder while another
	// process is: an earlier plugin that ends.
	rebinderRetry = time.Second
	// sweepTimeout bounds a search for containers that are gone.
	sweepTimeout = 10 * time.Second
)

// rebindHookSockets rebinds the sockets of containers that the OCI hook serves (Podman's, and those of
// runtimes without NRI): a hook has ended by the time a vswitch re-creates its socket. Hooks see that
// there is a rebinder, and bind sockets only then. After a failure it tries again, with a growing
// interval, until the plugin closes.
func (p *Plugin) rebindHookSockets(dir string) {
	var store *staging.Store
	active := false
	p.repeat(p.closing, "sockets of containers that the OCI hook serves are not rebound until this succeeds",
		"sockets of containers that the OCI hook serves are rebound again", func(succeeded func()) (wait time.Duration, err error) {
			if store == nil {
				store, err = staging.Open(p.opts.Host, dir, staging.Options{
					Owner: staging.HookOwner, Shared: true, NoCreate: true, Watch: true, Events: stagingEvents{p}})
				p.state.hooks.Store(store)
			}
			if err == nil && !active {
				active, err = store.BecomeRebinder()
			}
			if err != nil || !active {
				return rebinderRetry, err
			}
			succeeded()
			p.sweepOrphans(store)
			return staging.MinOrphanAge, nil
		})
}

// sweepOrphans removes the state of containers whose creation failed after the hook ran, and of those
// whose end was reported to no hook.
func (p *Plugin) sweepOrphans(store *staging.Store) {
	n, err := store.Sweep(staging.MinOrphanAge, sweepTimeout)
	p.reportRemoval(p.log, "the OCI hook's containers that are gone", err)
	if n > 0 {
		p.log.WithField("containers", n).Info("removed the state of the OCI hook's containers that are gone")
	}
}

// The status records of containers are in the state directory, from where a restarted plugin reads
// them. A goroutine of its own writes them: a directory that hangs costs records, and delays no
// container.

// recordDelay is how long a record waits for others, and for creations under way, which
// the writing of files slows down. A daemon that is killed in between does not know of
// the container afterwards.
const recordDelay = 200 * time.Millisecond

// currentRecords returns what the containers were given, by ID, and whether the records in the state
// directory are to be read before.
func (t *containerTable) currentRecords() (records map[string]*status.Container, unread bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	records = make(map[string]*status.Container)
	for id, c := range t.containers {
		if c.record != nil {
			records[id] = c.record
		}
	}
	return records, t.recordsUnread
}

// addRecords keeps what the containers were given before a restart.
func (t *containerTable) addRecords(found []status.Container) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, record := range found {
		if c := t.containers[record.ContainerID]; c != nil && c.record == nil {
			c.record = &record
			t.written[record.ContainerID] = &record
		}
	}
}

// writeRecords makes the records in the state directory those of the table. A record that cannot be
// written is lost. Those of an earlier process are read at once: jackfield status shows them.
func (p *Plugin) writeRecords() {
	table := p.containers.containerTable
	if _, unread := table.currentRecords(); !unread {
		deadline.Sleep(p.closing, recordDelay)
	}
	current := p.config.core.Load()
	table.writing.Lock()
	defer table.writing.Unlock()
	records, unread := table.currentRecords()
	if current == nil || !unread && maps.Equal(records, table.written) {
		return
	}
	files, err := status.OpenRecords(p.opts.Host, current.cfg.StateDir)
	if err != nil {
		p.reportLostRecord(err)
		return
	}
	if unread {
		p.readRecords(files)
		records, _ = table.currentRecords()
	}
	for id, record := range records {
		if table.written[id] != record {
			p.reportLostRecord(files.Write(record))
		}
	}
	for id := range table.written {
		if records[id] == nil {
			p.reportLostRecord(files.Remove(id))
		}
	}
	table.written = records
}

// readRecords reads the records of containers that live, and removes all others.
func (p *Plugin) readRecords(files *status.Records) {
	p.containers.mu.Lock()
	p.containers.recordsUnread = false
	p.containers.mu.Unlock()
	began := time.Now()
	alive := p.containers.hasContainer
	if p.runtime.unsynchronized.Load() {
		alive = func(string) bool { return true } // addRestored removes the records of ended containers
	}
	found, err := files.Retain(alive)
	p.reportLostRecord(err)
	if p.runtime.unsynchronized.Load() {
		p.addRestored(found)
	} else {
		p.containers.addRecords(found)
	}
	p.log.WithField("records", len(found)).WithField("took", time.Since(began).String()).Debug("status records read")
	p.containers.wakeMissedCheck()
}

// reportLostRecord counts and logs an error; nil is none.
func (p *Plugin) reportLostRecord(err error) {
	if err != nil {
		p.counters.StatusFailed.Add(1)
		p.log.WithError(err).Warn("jackfield status may lose some containers after a restart")
	}
}
