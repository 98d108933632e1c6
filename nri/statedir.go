// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"

	"github.com/jackfield/jackfield/internal/base/deadline"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/deliver/sockdir"
	"github.com/jackfield/jackfield/internal/deliver/staging"
)

// stateDirTimeout bounds how long the start waits for the state directory.
const stateDirTimeout = 3 * time.Second

// stateDir is the state directory on the host. It is opened once, with the first configuration. Its path and
// mode stay the same for as long as the plugin runs: see checkSameStore.
type stateDir struct {
	*daemon
	store    atomic.Pointer[staging.Store] // nil before the first configuration
	records  *statusRecords
	rebinder *hookRebinder
	wake     wakeup // runs the postponed removals

	mu        sync.Mutex
	postponed []func() // removals for which no worker was free
}

func newStateDir(d *daemon, records *statusRecords) *stateDir {
	s := &stateDir{daemon: d, records: records, rebinder: &hookRebinder{daemon: d}, wake: newWakeup()}
	d.runOn(s.wake, 0, s.runPostponed)
	return s
}

// open opens the state directory of the first configuration. If that fails the plugin ends, and systemd or
// the kubelet starts it again.
func (s *stateDir) open(cfg *config.Config) error {
	store, err := deadline.RunOrHandOver(nil, stateDirTimeout,
		func() (*staging.Store, error) { return s.openStore(cfg) },
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
	s.store.Store(store)
	if s.isStaged() {
		s.tasks.Go(func() { s.rebinder.run(staging.HookDir(cfg.StateDir)) })
	}
	return nil
}

// openStore opens the staging directories of this node, and warns if running containers can lose sockets.
func (s *stateDir) openStore(cfg *config.Config) (*staging.Store, error) {
	store, err := staging.Open(s.host, cfg.StateDir, staging.Options{Mode: staging.Mode(cfg.Sockets.Staging),
		Watch: true, Exclusive: true, DirectorySize: cfg.Sockets.DirectoryBytes(), Events: newStagingEvents(s.daemon)})
	if err != nil {
		return nil, err
	}
	s.records.read(cfg.StateDir)
	if st := store.Status(); st.Mode == staging.ModeDirectory {
		s.log.WithField("reason", st.Detail).Warn("sockets are delivered as plain directory mounts: when the host " +
			"re-creates a socket in a directory that it replaces, or that the policy does not grant as a whole (DIR/**), " +
			"running containers lose the socket; networks cannot be added to running containers")
	}
	// In the background, so that an unresponsive socket root does not delay the start.
	go func() {
		isSized := cfg.Sockets.DirectoryBytes() > 0
		for _, risk := range sockdir.CheckRootMounts(s.host, cfg.StateDir, cfg.Sockets.Roots, isSized) {
			s.log.WithField("roots", risk.Roots).WithField("remedy", risk.Remedy).Warn(risk.Found)
		}
	}()
	return store, nil
}

// isStaged reports whether sockets are bound in the staging directory.
func (s *stateDir) isStaged() bool { return s.store.Load().Status().Mode == staging.ModeMount }

// close closes the open stores. The sockets in them stay bound.
func (s *stateDir) close() error {
	var errs []error
	if store := s.store.Load(); store != nil {
		errs = append(errs, store.Close(), store.UnmountIfEmpty())
	}
	if store := s.rebinder.store.Load(); store != nil {
		errs = append(errs, store.Close())
	}
	return errors.Join(errs...)
}

// openStores returns the plugin's store and the OCI hook's store, unless they are not open.
func (s *stateDir) openStores() []*staging.Store {
	return slices.DeleteFunc([]*staging.Store{s.store.Load(), s.rebinder.store.Load()},
		func(store *staging.Store) bool { return store == nil })
}

// removeContainer removes the state of a container. An incomplete removal is logged.
func (s *stateDir) removeContainer(pod *api.PodSandbox, c *api.Container) {
	s.reportRemoval(s.containerLog(pod, c), "the container", s.store.Load().RemoveContainer(pod.GetId(), c.GetId()))
}

// removeIdleSandbox removes the state of a sandbox that has no container. A container that is created later
// gets its socket directories again.
func (s *stateDir) removeIdleSandbox(pod *api.PodSandbox) {
	s.reportRemoval(s.podLog(pod), "the pod", s.store.Load().RemoveIdleSandbox(pod.GetId()))
}

// postpone schedules a removal that runs without a worker, because the runtime does not wait for it.
func (s *stateDir) postpone(remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.postponed = append(s.postponed, remove)
	s.wake.send()
}

// runPostponed runs the postponed removals. A panic in one of them does not prevent the others.
func (s *stateDir) runPostponed() {
	s.mu.Lock()
	postponed := s.postponed
	s.postponed = nil
	s.mu.Unlock()
	for _, remove := range postponed {
		func() {
			defer s.recoverPanic(new(error), nil)
			remove()
		}()
	}
}
