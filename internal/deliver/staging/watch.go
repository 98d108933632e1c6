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

	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/watch"
)

// hostSocket is a socket of the host that is bound in containers.
type hostSocket struct {
	socket     edit.Socket // of the first container; all have the same root and rel
	checking   sync.Mutex  // one check at a time: another one could bind an older socket
	containers map[string]*record
	watch      *watch.Watch
	tenant     bool // watch belongs to the watcher of directories that tenants can write
	moving     bool // while it moves to the other watcher
}

// tenantPause is how long the watcher of directories that tenants can write sleeps after events
// that concern no socket.
const tenantPause = 2 * time.Millisecond

// startWatchers starts the watchers. Directories that tenants can write have one of their own, so that a
// tenant delays only tenants. After an error, Close ends what was started.
func (s *Store) startWatchers() error {
	for tenant, pause := range map[bool]time.Duration{false: 0, true: tenantPause} {
		w, err := watch.New(s.host, watch.Options{Failed: s.reportFailure, Pause: pause})
		if err != nil {
			return err
		}
		s.watchers[tenant] = w
	}
	return nil
}

// reportFailure reports a failure that no single socket has, such as that a directory cannot be watched any more.
func (s *Store) reportFailure(err error) { s.reportSocketFailure("", false, err) }

func (s *Store) reportSocketFailure(socket string, tenant bool, err error) {
	if s.opts.Events != nil {
		s.opts.Events.Failed(socket, tenant, err)
	}
}

// watchSocket has a socket watched, and then handles what happened to it before. tenant says by which watcher.
// A watch of the other one is replaced.
func (s *Store) watchSocket(src *hostSocket, tenant bool) {
	s.mu.Lock()
	w := s.watchers[tenant]
	s.mu.Unlock()
	if w == nil {
		return
	}
	watch, err := w.Add(filepath.Dir(src.socket.HostPath()), filepath.Base(src.socket.HostPath()), watch.Attributes,
		func(string) { s.onSocketEvent(src) })
	if err != nil && !errors.Is(err, os.ErrClosed) {
		s.reportFailure(fmt.Errorf("watch socket %q: %w", src.socket.HostPath(), err))
	}
	s.mu.Lock()
	old := watch
	if s.sockets[src.socket.HostPath()] == src && watch != nil {
		old, src.watch, src.tenant = src.watch, watch, tenant
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

// updateWatcher moves the watch of a socket to the other watcher when tenants got or lost a
// directory on the way to it. The lock is held.
func (s *Store) updateWatcher(src *hostSocket, tenant bool) {
	if src.watch != nil && src.tenant != tenant && !src.moving && !s.closed {
		src.moving = true
		s.bg.Go(func() { s.watchSocket(src, tenant) })
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
		src := s.sockets[k.HostPath()]
		check := func() { s.onSocketEvent(src) } // it may have changed since it was opened
		if src == nil {
			src = &hostSocket{socket: *k, containers: make(map[string]*record)}
			// What checks the socket moves the watch if a tenant can write on the way.
			check = func() { s.watchSocket(src, false) }
			s.sockets[k.HostPath()] = src
		}
		if s.opts.Watch && !s.closed {
			s.bg.Go(check)
		}
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
		path := r.Sockets[i].HostPath()
		src := s.sockets[path]
		if src == nil {
			continue
		}
		if delete(src.containers, containerID); len(src.containers) > 0 {
			continue
		}
		delete(s.sockets, path)
		if src.watch != nil && !s.closed {
			s.bg.Go(src.watch.Stop) // it can wait for a watch of a file system that is unresponsive
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
	if err := validateContainer(&r.Container); err != nil {
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
	return r != nil && (slices.ContainsFunc(r.Sockets, func(k edit.Socket) bool {
		return k.Root == root && filepath.Clean(k.Rel) == filepath.Clean(rel)
	}) ||
		slices.ContainsFunc(r.SocketDirs, func(d edit.SocketDir) bool {
			return d.Root == root && filepath.Clean(d.Rel) == filepath.Dir(filepath.Clean(rel))
		}))
}

// Stats counts what the store tracks.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{Containers: len(s.tracked), Sockets: len(s.sockets)}
}
