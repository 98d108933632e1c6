// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/pathwatch"
)

// source is a socket of the host that containers hold.
type source struct {
	socket  Socket // of the first holder: root and rel, which are all holders' own
	holders map[string]*record
	inode   inode // what is bound in all of them; zero when that is not sure
	watch   *pathwatch.Watch
	lane    int    // of the watcher that watch belongs to
	moving  bool   // while it is watched in the other lane
	looks   uint64 // how many looks at it have begun
	seen    uint64 // the last of them of which something came
	hush    hush
}

// Rebound is a socket that the host side made anew.
type Rebound struct {
	Socket     string        // its host path
	Containers int           // in which it was bound anew
	Took       time.Duration // from the watcher's waking to the last of them
	// Quiet says that a tenant can make the socket, and something was told of it a
	// moment ago: to be counted, and not worth a line.
	Quiet bool
}

// Paths that tenants can write are watched by a watcher of their own, so that what
// one does there delays nobody else.
const (
	ofHost = iota
	ofTenants
)

// tenantPatience is how long that watcher rests after events that are nobody's.
const tenantPatience = 2 * time.Millisecond

func (s *Store) startWatching() error {
	for i := range s.watch {
		opts := pathwatch.Options{Failed: s.watchFailed}
		if i == ofTenants {
			opts.Patience = tenantPatience
		}
		w, err := pathwatch.New(s.host, opts)
		if err != nil {
			if s.watch[0] != nil {
				err = errors.Join(err, s.watch[0].Close())
			}
			return err
		}
		s.watch[i] = w
	}
	return nil
}

func (s *Store) failed(err error) {
	if s.opts.Events != nil {
		s.opts.Events.Failed(err)
	}
}

// watchFailed reports that a directory could not be watched any more. A tenant that renames directories can cause that again and again.
func (s *Store) watchFailed(err error) {
	s.mu.Lock()
	quiet, more := s.watchHush.next(time.Now(), false, true)
	s.mu.Unlock()
	if !quiet {
		s.failed(withUnreported(err, more))
	}
}

// withUnreported adds to an error how many before it were not reported.
func withUnreported(err error, more int) error {
	if more == 0 {
		return err
	}
	return fmt.Errorf("%w; %d failures before it were not told", err, more)
}

// hold takes note of a container whose sockets are bound, and has them watched. The
// lock is held.
func (s *Store) hold(r *record) {
	s.release(r.ID)
	s.held[r.ID] = r
	for i := range r.Sockets {
		k := &r.Sockets[i]
		src := s.sources[k.path()]
		if src == nil {
			src = &source{socket: *k, holders: make(map[string]*record)}
			s.sources[k.path()] = src
			if s.opts.Watch && !s.closed {
				s.bg.Go(func() { s.watchSource(src) })
			}
		} else if s.opts.Watch && !s.closed {
			// It may have changed between its opening and now.
			s.bg.Go(func() { s.changed(src) })
		}
		// What this holder has need not be what the others have.
		src.inode = inode{}
		src.holders[r.ID] = r
	}
}

// release forgets a container. The lock is held.
func (s *Store) release(containerID string) {
	r := s.held[containerID]
	if r == nil {
		return
	}
	delete(s.held, containerID)
	for i := range r.Sockets {
		path := r.Sockets[i].path()
		src := s.sources[path]
		if src == nil {
			continue
		}
		if delete(src.holders, containerID); len(src.holders) > 0 {
			continue
		}
		delete(s.sources, path)
		if src.watch != nil {
			src.watch.Stop()
			src.watch = nil
		}
	}
}

// watchSource watches a socket, and looks at what became of it before that. For a socket that is watched in the wrong lane it replaces the watch.
func (s *Store) watchSource(src *source) {
	lane := ofHost
	if s.claimed(&src.socket) {
		lane = ofTenants
	}
	s.mu.Lock()
	w := s.watch[lane]
	s.mu.Unlock()
	if w == nil {
		return
	}
	watch, err := w.Add(filepath.Dir(src.socket.path()), filepath.Base(src.socket.path()), pathwatch.Attributes, func(string) { s.changed(src) })
	if err != nil && !errors.Is(err, os.ErrClosed) {
		s.watchFailed(fmt.Errorf("watch socket %q: %w", src.socket.path(), err))
	}
	s.mu.Lock()
	old := watch
	if s.sources[src.socket.path()] == src && watch != nil {
		old, src.watch, src.lane = src.watch, watch, lane
	}
	src.moving = false
	s.mu.Unlock()
	if old != nil {
		old.Stop()
	}
	if old != watch {
		s.changed(src)
	}
}

// decideLane reports whether a tenant can write on the way to a socket now, and has it watched among such sockets when that has changed. The lock is
// held.
func (s *Store) decideLane(src *source) (tenant bool) {
	tenant = s.claimed(&src.socket)
	lane := ofHost
	if tenant {
		lane = ofTenants
	}
	if src.watch != nil && src.lane != lane && !src.moving && !s.closed {
		src.moving = true
		s.bg.Go(func() { s.watchSource(src) })
	}
	return tenant
}

// changed looks at a socket that may have been made anew, or had its rights
// changed, and binds it anew where it was. A socket that is gone stays bound until
// there is another: that it refuses connections tells an application more than its
// absence.
func (s *Store) changed(src *source) {
	defer func() {
		if r := recover(); r != nil {
			s.watchFailed(fmt.Errorf("bind socket %q anew: internal error: %v: %w\n%s", src.socket.path(), r, errdefs.ErrInternal, debug.Stack()))
		}
	}()
	began := time.Now()
	n, err := s.renew(src)
	failed := err != nil && !errdefs.IsNotFound(err)
	s.mu.Lock()
	tenant := s.decideLane(src)
	if !failed && n == 0 {
		s.mu.Unlock()
		return
	}
	quiet, more := src.hush.next(time.Now(), tenant, failed)
	s.mu.Unlock()
	if failed && !quiet {
		s.failed(withUnreported(fmt.Errorf("bind socket %q anew: %w", src.socket.path(), err), more))
	}
	if n > 0 && s.opts.Events != nil {
		s.opts.Events.Rebound(Rebound{Socket: src.socket.path(), Containers: n, Took: time.Since(began), Quiet: quiet})
	}
}

// renew binds a socket in every container that holds it and has another one there,
// and says in how many.
func (s *Store) renew(src *source) (int, error) {
	s.mu.Lock()
	src.looks++
	began := src.looks
	s.mu.Unlock()
	// Outside the lock: the host's file systems may be slow.
	fd, st, err := s.look(src)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	unlock, err := s.lock()
	if err != nil {
		return 0, err
	}
	defer unlock()
	if began < src.seen {
		return 0, nil // one that began later was quicker: this may be an older socket
	}
	src.seen = began
	n, err := s.renewWith(src, fd, &st)
	if err != nil && gone(fd) {
		// Whatever failed, the next one's coming is told.
		err = fmt.Errorf("%q was removed meanwhile: %w", src.socket.path(), errdefs.ErrNotFound)
	}
	return n, err
}

// look opens what a source is now.
func (s *Store) look(src *source) (int, unix.Stat_t, error) {
	fd, err := s.openIn(src.socket.Root, src.socket.Rel, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return -1, unix.Stat_t{}, err
	}
	st, err := isSocket(fd, src.socket.path())
	if err != nil {
		unix.Close(fd)
		return -1, st, err
	}
	return fd, st, nil
}

// renewWith binds the socket of a descriptor. The lock is held.
func (s *Store) renewWith(src *source, fd int, st *unix.Stat_t) (int, error) {
	now := inode{uint64(st.Dev), st.Ino}
	var errs []error
	claimants := s.claims.Claimants(src.socket.path())
	var allowed []bindRequest
	var rights []rightsRequest
	for id, r := range src.holders {
		if s.departed(id) {
			continue
		}
		for i := range r.Sockets {
			k := &r.Sockets[i]
			if k.path() != src.socket.path() {
				continue
			}
			if err := claimants.Check(r.SandboxID); err != nil {
				errs = append(errs, asked(k.From, err))
				continue
			}
			allowed = append(allowed, bindRequest{id, k})
			if err := k.Access.setLabel(fd, "socket"); err != nil {
				errs = append(errs, asked(k.From, err))
			}
			if k.Access.isGranted() {
				rights = append(rights, rightsRequest{record: s.recordName(r.SandboxID, id), access: &k.Access, from: k.From})
			}
		}
	}
	// Before it is bound anywhere, so that who connects at once may.
	if len(rights) > 0 {
		errs = append(errs, s.grantAll(&src.socket, fd, st, rights))
		for i := range rights {
			errs = append(errs, asked(rights[i].from, rights[i].err))
		}
	}
	renewed := make(map[string]bool)
	for _, b := range allowed {
		if src.inode == now {
			break
		}
		for _, at := range b.socket.At {
			target := filepath.Join(s.containers(), b.container, at)
			if have, ok := bound(target); ok && have == now {
				continue
			}
			if err := swap(fd, target); err != nil {
				errs = append(errs, asked(b.socket.From, err))
				continue
			}
			renewed[b.container] = true
		}
	}
	err := errors.Join(errs...)
	if src.inode = now; err != nil {
		src.inode = inode{}
	}
	return len(renewed), err
}

// bindRequest is a container's socket that is to be bound.
type bindRequest struct {
	container string
	socket    *Socket
}

// recover takes up a container that an earlier process made.
func (s *Store) recover(sandboxID, containerID string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[containerID] != nil || s.status.Mode != Mounts {
		return nil
	}
	r := s.readRecord(sandboxID, containerID)
	if err := r.check(); err != nil {
		return err
	}
	s.hold(&r)
	return nil
}

// Stats are counts of what a store holds.
type Stats struct {
	Containers int // with staging
	Sockets    int // of the host, bound in them
	Bound      int // places at which they are bound
}

// Plus is the sum of two stores' counts.
func (s Stats) Plus(o Stats) Stats {
	return Stats{s.Containers + o.Containers, s.Sockets + o.Sockets, s.Bound + o.Bound}
}

// Held are the containers that have staging and can be updated, of any owner.
func (s *Store) Held() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.held))
}

// Holds reports whether a container has a socket of the host in it, or the directory
// in which the application makes it.
func (s *Store) Holds(id, root, rel string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.held[id]
	return r != nil && (slices.ContainsFunc(r.Sockets, func(k Socket) bool { return k.Root == root && filepath.Clean(k.Rel) == filepath.Clean(rel) }) ||
		slices.ContainsFunc(r.SocketDirs, func(d SocketDir) bool {
			return d.Root == root && filepath.Clean(d.Rel) == filepath.Dir(filepath.Clean(rel))
		}))
}

// Stats counts what the store holds.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Stats{Containers: len(s.held), Sockets: len(s.sources)}
	for _, r := range s.held {
		for i := range r.Sockets {
			st.Bound += len(r.Sockets[i].At)
		}
	}
	return st
}
