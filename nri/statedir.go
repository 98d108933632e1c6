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

	"github.com/jackfield/jackfield/internal/base/deadline"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/deliver/staging"
	"github.com/jackfield/jackfield/internal/host/dircheck"
	"github.com/jackfield/jackfield/internal/report/status"
	"github.com/jackfield/jackfield/internal/report/telemetry"
)

// stateDirTimeout is how long the start waits for the state directory.
const stateDirTimeout = 3 * time.Second

// stateDir is the state directory. It is opened once, with the first configuration. Its path and mode stay the
// same for as long as the plugin runs: see checkSameStore.
type stateDir struct {
	store atomic.Pointer[staging.Store] // nil before the first configuration
	hooks atomic.Pointer[staging.Store] // of the OCI hook's containers; nil while it is not open

	wakePostponed func() // triggers runPostponed

	mu        sync.Mutex
	postponed []func(*staging.Store) // removals for which no worker was free
}

// openStateDir opens the state directory of the first configuration. Without it the plugin ends, and systemd or
// the kubelet starts it again.
func (p *Plugin) openStateDir(cfg *config.Config) error {
	store, err := deadline.RunOrHandOver(nil, stateDirTimeout, func() (*staging.Store, error) { return p.openStore(cfg) },
		func(late *staging.Store, err error) {
			if err == nil {
				_ = late.Close() // the start has failed
			}
		})
	if errors.Is(err, deadline.ErrTimeout) {
		return errdefs.ErrUnavailable.WithMessage(fmt.Sprintf("open state directory %q: it must respond within %v; "+
			"check the file system mounted there, or set another stateDir", cfg.StateDir, stateDirTimeout))
	}
	if err != nil {
		return err
	}
	p.state.store.Store(store)
	if p.state.isStaged() {
		p.tasks.Go(func() { p.rebindHookSockets(staging.HookDir(cfg.StateDir)) })
	}
	return nil
}

// isStaged reports whether sockets are bound in the staging directory.
func (s *stateDir) isStaged() bool { return s.store.Load().Status().Mode == staging.ModeMount }

// openStore opens the state directory and stages sockets as the configuration says.
func (p *Plugin) openStore(cfg *config.Config) (*staging.Store, error) {
	store, err := staging.Open(p.opts.Host, cfg.StateDir, staging.Options{Mode: staging.Mode(cfg.Sockets.Staging),
		Watch: true, Exclusive: true, DirectorySize: cfg.Sockets.DirectoryBytes(), Events: stagingEvents{p}})
	if err != nil {
		return nil, err
	}
	p.readRecords(cfg.StateDir)
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

// retainLiving removes the state of sandboxes and containers that the runtime does not report as living. State that
// was created after asOf stays.
func (p *Plugin) retainLiving(store *staging.Store, asOf time.Time) {
	p.reportRemoval(p.log, "containers that are gone", store.Retain(asOf, p.containers.hasSandbox, p.containers.hasContainer))
	p.containers.hotplug.synchronize(store)
}

// runInStore runs f, which removes something from the state directory, within the runtime's time or beyond it.
func (p *Plugin) runInStore(ctx context.Context, h telemetry.Handler, f func(*staging.Store)) {
	err := p.runOnWorker(ctx, h, nil, func() error { f(p.state.store.Load()); return nil })
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

// runPostponed runs the removals for which no worker was free. It needs no worker, because the runtime does not wait.
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

// The status records of containers are in the state directory. A plugin reads them at its start. A goroutine of its
// own writes them, so that a directory that hangs costs records and delays no container.

// recordDelay is how long a record waits for others, and for creations under way, which
// the writing of files slows down. A daemon that is killed in between does not know of
// the container afterwards.
const recordDelay = 200 * time.Millisecond

// currentRecords returns what the containers were given, by ID.
func (t *containerTable) currentRecords() map[string]*status.Container {
	t.mu.Lock()
	defer t.mu.Unlock()
	records := make(map[string]*status.Container)
	maps.Copy(records, t.recorded)
	for id, c := range t.containers {
		if c.record != nil {
			records[id] = c.record
		}
	}
	return records
}

// readRecords reads the records that an earlier process wrote.
func (p *Plugin) readRecords(stateDir string) {
	began, table := time.Now(), p.containers.containerTable
	files, err := status.OpenRecords(p.opts.Host, stateDir)
	if err != nil {
		p.reportLostRecord(err)
		return
	}
	found, err := files.Read()
	p.reportLostRecord(err)
	recorded := make(map[string]*status.Container, len(found))
	for i := range found {
		recorded[found[i].ContainerID] = &found[i]
	}
	table.writing.Lock()
	table.written = recorded
	table.writing.Unlock()
	table.mu.Lock()
	table.recorded = recorded
	table.mu.Unlock()
	p.log.WithField("records", len(found)).WithField("took", time.Since(began).String()).Debug("status records read")
}

// writeRecords syncs the records in the state directory to the table. A record that cannot be written is lost.
func (p *Plugin) writeRecords() {
	deadline.Sleep(p.closing, recordDelay)
	current, table := p.config.core.Load(), p.containers.containerTable
	table.writing.Lock()
	defer table.writing.Unlock()
	records := table.currentRecords()
	if current == nil || maps.Equal(records, table.written) {
		return
	}
	files, err := status.OpenRecords(p.opts.Host, current.cfg.StateDir)
	if err != nil {
		p.reportLostRecord(err)
		return
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

// reportLostRecord counts and logs an error; nil is none.
func (p *Plugin) reportLostRecord(err error) {
	if err != nil {
		p.counters.StatusFailed.Add(1)
		p.log.WithError(err).Warn("jackfield status may lose some containers after a restart")
	}
}
