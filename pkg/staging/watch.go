// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/jackfield/jackfield/internal/claims"
	"github.com/jackfield/jackfield/internal/fswatch"
)

// hostSocket is a socket of the host that is bound in containers.
type hostSocket struct {
	socket     Socket     // of the first container; all have the same root and rel
	checking   sync.Mutex // one check at a time: another one could bind an older socket
	containers map[string]*record
	bound      claims.Identity // what is bound in all of them; zero when unknown
	watch      *fswatch.Watch
	lane       int  // index of the watcher that watch belongs to
	moving     bool // while it moves to the other lane
	throttle   logThrottle
}

// Paths that tenants can write have a watcher of their own, so that a tenant delays only
// tenants.
const (
	hostLane = iota
	tenantLane
)

// tenantPause is how long that watcher sleeps after events that concern no socket.
const tenantPause = 2 * time.Millisecond

// startWatchers starts a watcher for each lane.
func (s *Store) startWatchers() error {
	for i := range s.watchers {
		opts := fswatch.Options{Failed: s.reportWatchFailure}
		if i == tenantLane {
			opts.Pause = tenantPause
		}
		w, err := fswatch.New(s.host, opts)
		if err != nil {
			if s.watchers[0] != nil {
				err = errors.Join(err, s.watchers[0].Close())
			}
			return err
		}
		s.watchers[i] = w
	}
	return nil
}

func (s *Store) reportFailure(err error) {
	if s.opts.Events != nil {
		s.opts.Events.Failed(err)
	}
}

// reportWatchFailure reports that a directory cannot be watched any more. A tenant that renames
// directories can cause that repeatedly.
func (s *Store) reportWatchFailure(err error) {
	s.mu.Lock()
	suppress, suppressed := s.watchThrottle.countLine(time.Now(), false, true)
	s.mu.Unlock()
	if !suppress {
		s.reportFailure(withSuppressed(err, suppressed))
	}
}

// watchSocket watches a socket, and then handles what happened to it before. It replaces a watch
// in the wrong lane.
func (s *Store) watchSocket(src *hostSocket) {
	lane := laneOf(s.claims.Claimants(src.socket.hostPath()).HasAny())
	s.mu.Lock()
	w := s.watchers[lane]
	s.mu.Unlock()
	if w == nil {
		return
	}
	watch, err := w.Add(filepath.Dir(src.socket.hostPath()), filepath.Base(src.socket.hostPath()), fswatch.Attributes, func(string) { s.onSocketEvent(src) })
	if err != nil && !errors.Is(err, os.ErrClosed) {
		s.reportWatchFailure(fmt.Errorf("watch socket %q: %w", src.socket.hostPath(), err))
	}
	s.mu.Lock()
	old := watch
	if s.sockets[src.socket.hostPath()] == src && watch != nil {
		old, src.watch, src.lane = src.watch, watch, lane
	}
	src.moving = false
	s.mu.Unlock()
	if old != nil {
		old.Stop()
	}
	if old != watch {
		s.onSocketEvent(src)
	}
}

// laneOf returns the lane of a socket, given whether a tenant can write a directory on the way
// to it.
func laneOf(tenant bool) int {
	if tenant {
		return tenantLane
	}
	return hostLane
}

// updateLane moves the watch of a socket to the other lane when tenants got or lost a directory
// on the way to it. The lock is held.
func (s *Store) updateLane(src *hostSocket, tenant bool) {
	if lane := laneOf(tenant); src.watch != nil && src.lane != lane && !src.moving && !s.closed {
		src.moving = true
		s.bg.Go(func() { s.watchSocket(src) })
	}
}

// trackContainer remembers a container whose sockets are bound, and watches the sockets. The lock is
// held.
func (s *Store) trackContainer(r *record) {
	if was := s.tracked[r.ID]; was != nil {
		r.rebinds = was.rebinds
	}
	s.untrackContainer(r.ID)
	s.tracked[r.ID] = r
	if r.rebinds == nil {
		r.rebinds = make(map[string]int)
	}
	for i := range r.Sockets {
		k := &r.Sockets[i]
		src, check := s.sockets[k.hostPath()], s.onSocketEvent // it may have changed since it was opened
		if src == nil {
			src, check = &hostSocket{socket: *k, containers: make(map[string]*record)}, s.watchSocket
			s.sockets[k.hostPath()] = src
		}
		if s.opts.Watch && !s.closed {
			s.bg.Go(func() { check(src) })
		}
		// This container may have another socket bound than the others.
		src.bound = claims.Identity{}
		src.containers[r.ID] = r
	}
}

// untrackContainer forgets a container. The lock is held.
func (s *Store) untrackContainer(containerID string) {
	r := s.tracked[containerID]
	if r == nil {
		return
	}
	delete(s.tracked, containerID)
	for i := range r.Sockets {
		path := r.Sockets[i].hostPath()
		src := s.sockets[path]
		if src == nil {
			continue
		}
		if delete(src.containers, containerID); len(src.containers) > 0 {
			continue
		}
		delete(s.sockets, path)
		if src.watch != nil {
			src.watch.Stop()
			src.watch = nil
		}
	}
}

// trackRecorded tracks a container that an earlier process staged.
func (s *Store) trackRecorded(sandboxID, containerID string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tracked[containerID] != nil || s.status.Mode != ModeMount {
		return nil
	}
	r := s.readRecord(sandboxID, containerID)
	if err := r.validate(); err != nil {
		return err
	}
	s.trackContainer(&r)
	return nil
}

// Stats are counts of what a store tracks.
type Stats struct {
	Containers int
	Sockets    int // of the host, bound in the containers
}

// Add returns the sum of the counts of two stores.
func (s Stats) Add(o Stats) Stats {
	return Stats{s.Containers + o.Containers, s.Sockets + o.Sockets}
}

// TrackedContainers returns the containers that can be updated, of any owner, sorted.
func (s *Store) TrackedContainers() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.tracked))
}

// HasSocket reports whether a tracked container has a socket of the host, or the directory in
// which the application creates that socket.
func (s *Store) HasSocket(id, root, rel string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.tracked[id]
	return r != nil && (slices.ContainsFunc(r.Sockets, func(k Socket) bool { return k.Root == root && filepath.Clean(k.Rel) == filepath.Clean(rel) }) ||
		slices.ContainsFunc(r.SocketDirs, func(d SocketDir) bool {
			return d.Root == root && filepath.Clean(d.Rel) == filepath.Dir(filepath.Clean(rel))
		}))
}

// Stats counts what the store tracks.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{Containers: len(s.tracked), Sockets: len(s.sockets)}
}
