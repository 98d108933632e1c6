// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/host/watch"
)

// Any user in a container can read the files that are mounted into it. Other users of the host cannot enter the
// directories above them.
const (
	privateDir   = 0o700
	containerDir = 0o755
	viewFile     = 0o644
)

// Store is the state directory. It is safe for concurrent use.
type Store struct {
	opts Options
	host hostfs.Root
	dir  string // as a path of this process
	lock *stateLock

	records    *records
	ready      *readyFiles
	containers *containerDirs
	sockets    *hostSockets
	stager     *stager
	tracker    *tracker

	rebinderLock int // descriptor of the lock that makes this process the rebinder, or -1; lock guards it
	daemonLock   int // descriptor of the lock of Options.Exclusive, or -1
}

// Options change how a Store works. The zero value is for a short-lived process that stages or removes a container.
type Options struct {
	// Mode is the wanted mode; "" is ModeAuto.
	Mode Mode
	// Owner is recorded with each container. Retain removes only this owner's containers. It
	// is "" for the NRI plugin, whose state directory is the node's. The state directory of
	// every other owner lies in that of the node, where all owners share the claims.
	Owner string
	// Watch rebinds a socket when the vswitch re-creates it.
	Watch bool
	// Events, when not nil, receives the events of the background.
	Events Events
	// Shared is for a state directory that many short-lived processes use, and that one long-lived process watches.
	Shared bool
	// DirectorySize limits each directory that is created for an application's sockets, in
	// bytes, where mounts reach the host. 0 leaves them plain directories.
	DirectorySize uint64
	// NoCreate is for a process that watches or removes the containers of other processes. With Watch it tracks
	// these containers; without, it creates nothing.
	NoCreate bool
	// Exclusive is for the node's daemon: Open fails with errdefs.ErrConflict while another process
	// has the state directory open with it.
	Exclusive bool
}

// Events receives the events of a store's background. Each watcher calls its methods one at a time. They must not
// block for long and must not call the store.
type Events interface {
	// Rebound reports that a vswitch re-created a socket and that it was rebound.
	Rebound(Rebound)
	// Failed reports an error of a socket, or of none. The store tries again when the socket is created the
	// next time. If a tenant can write a directory on the way to the socket, it can cause any number of errors.
	Failed(socket string, tenant bool, err error)
}

// Open prepares the state directory. It is created with its parents, mode 0755 whatever the
// umask. A state directory that another user owns or can write is errdefs.ErrPermissionDenied.
func Open(host hostfs.Root, dir string, opts Options) (*Store, error) {
	s := newStore(host, dir, opts)
	if err := createStateDir(s.records, opts); err != nil {
		return nil, err
	}
	if opts.Exclusive {
		lock, err := lockAsDaemon(s.dir, dir)
		if err != nil {
			return nil, err
		}
		s.daemonLock = lock
	}
	if !opts.NoCreate {
		file := filepath.Join(s.dir, statusFile)
		if err := s.lock.run(func() error { return s.containers.chooseMode(file) }); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	if opts.Watch && s.containers.status.Mode == ModeMount {
		err := s.tracker.startWatchers()
		if err == nil && opts.Shared && opts.NoCreate {
			err = s.tracker.watchReadyDir()
		}
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

func newStore(host hostfs.Root, dir string, opts Options) *Store {
	s := &Store{opts: opts, host: host, dir: host.Path(dir), lock: &stateLock{}, rebinderLock: -1, daemonLock: -1,
		records: newRecords(host, dir, &opts)}
	if opts.Shared {
		s.lock.file = filepath.Join(s.dir, lockFile)
	}
	s.ready = &readyFiles{dir: readyDir(s.dir), shared: opts.Shared}
	s.containers = &containerDirs{host: host, dir: edit.ContainersDir(s.dir), wanted: opts.Mode, shared: opts.Shared,
		status: Status{Mode: ModeMount}}
	s.sockets = newHostSockets(s.records, opts.DirectorySize)
	s.stager = &stager{sockets: s.sockets, containers: s.containers, lock: s.lock}
	s.tracker = &tracker{records: s.records, ready: s.ready, containers: s.containers, events: opts.Events,
		watches: opts.Watch, lock: s.lock, tracked: make(map[string]*record), sockets: make(map[string]*hostSocket),
		watchers: make(map[bool]*watch.Watcher),
		rebinder: &rebinder{sockets: s.sockets, containers: s.containers, ready: s.ready, lock: s.lock}}
	return s
}

// Close ends the watches. Containers keep everything that was staged for them.
func (s *Store) Close() error {
	s.lock.mu.Lock()
	var errs []error
	for _, lock := range []*int{&s.rebinderLock, &s.daemonLock} {
		if *lock >= 0 {
			errs = append(errs, unix.Close(*lock))
			*lock = -1
		}
	}
	s.tracker.closed = true
	s.lock.mu.Unlock()
	return errors.Join(append(errs, s.tracker.close())...)
}

// Status returns the mode in force.
func (s *Store) Status() Status { return s.containers.status }

// UnmountIfEmpty removes the shared mount of the state directory when no container is staged.
// It is for the last store of a state directory.
func (s *Store) UnmountIfEmpty() error {
	return s.lock.run(func() error {
		if s.opts.Shared && !isMountRoot(s.containers.dir) {
			return nil
		}
		if left, err := s.Containers(); err != nil || len(left) > 0 || s.containers.status.Mode != ModeMount {
			return err
		}
		return unmountStack(s.containers.dir)
	})
}

// Containers lists the staged containers, sorted.
func (s *Store) Containers() ([]string, error) { return listNames(s.containers.dir) }

// Update changes a running container to c. It adds sockets and socket directories first, then replaces files
// atomically, and then removes everything that c omits. So everything that a file names exists. A socket that does
// not exist yet is bound once it does. Directories stay, since the container may have them mounted elsewhere.
//
// A container that is not tracked is errdefs.ErrNotFound. An item that cannot be delivered is an error, and is not in
// Change.Added; the others are delivered. A socket that cannot be opened or is denied, and a socket directory that
// cannot be created, are not part of the container then. A socket that was opened and cannot be bound is part of it:
// it is tried again at once in the background, which reports a failure to Events, and whenever the host re-creates
// the socket.
func (s *Store) Update(c edit.Container) (Change, error) {
	if err := validateContainer(&c); err != nil {
		return Change{}, err
	}
	s.lock.mu.Lock()
	was := s.tracker.tracked[c.ID]
	s.lock.mu.Unlock()
	if was == nil || was.SandboxID != c.SandboxID {
		return Change{}, errdefs.ErrNotFound.WithMessage(fmt.Sprintf("update container %q: it is not staged", c.ID))
	}
	// One caller at a time updates a container; a concurrent removal wins.
	u := &update{sockets: s.sockets, records: s.records, containers: s.containers, tracker: s.tracker, was: was,
		now: &record{Owner: was.Owner, Container: c}}
	defer u.close()
	u.keepDirs()
	u.openNewDirs()
	u.openNewSockets()
	err := u.apply()
	// Without the store's lock: the host's file systems may be slow.
	err = errors.Join(err, s.sockets.rights.Revoke(u.dropped, u.droppedBy))
	return u.change, errors.Join(append(u.errs, err)...)
}

// UpdateRemoves reports whether an update would remove a socket, a socket directory or a part of a
// JSON file from the container.
func (s *Store) UpdateRemoves(c edit.Container) bool {
	for _, f := range c.Files {
		have, err := os.ReadFile(filepath.Join(s.containers.dir, c.ID, f.Name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var was, is any
		if err != nil || json.Unmarshal(have, &was) != nil || json.Unmarshal(f.Data, &is) != nil || losesValue(was, is) {
			return true
		}
	}
	s.lock.mu.Lock()
	defer s.lock.mu.Unlock()
	was := s.tracker.tracked[c.ID]
	if was == nil {
		return false
	}
	for i := range was.Sockets {
		k := &was.Sockets[i]
		if slices.ContainsFunc(k.At, func(at string) bool { return !hasSocketAt(&c, at, k.HostPath()) }) {
			return true
		}
	}
	return slices.ContainsFunc(was.SocketDirs, func(d edit.SocketDir) bool {
		return !slices.ContainsFunc(c.SocketDirs, d.IsSame)
	})
}

// SweepClaims removes this store's claims of sandboxes that it has no record of. Only a crash
// or a lost record leaves such claims.
func (s *Store) SweepClaims() error { return s.sockets.sweepClaims() }

// BecomeRebinder makes this process the rebinder of the state directory until Close. It returns
// false while another process is the rebinder.
func (s *Store) BecomeRebinder() (bool, error) {
	s.lock.mu.Lock()
	defer s.lock.mu.Unlock()
	if s.rebinderLock >= 0 {
		return true, nil
	}
	if s.tracker.closed {
		return false, os.ErrClosed
	}
	fd, err := openLocked(filepath.Join(s.dir, rebinderFile), unix.O_CREAT, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("become the rebinder of state directory %q: %w", s.dir, err)
	}
	s.rebinderLock = fd
	return true, nil
}

// TrackedContainers returns the containers that can be updated, of any owner, sorted.
func (s *Store) TrackedContainers() []string { return s.tracker.list() }

// HasSocket reports whether a tracked container has a socket of the host, or the directory in
// which the application creates that socket.
func (s *Store) HasSocket(id, root, rel string) bool { return s.tracker.hasSocket(id, root, rel) }

// Stats counts the tracked containers and sockets.
func (s *Store) Stats() Stats { return s.tracker.stats() }

// Sockets returns the sockets of all tracked containers. It reads the host's file systems, so it can hang.
func (s *Store) Sockets() []PlacedSocket { return s.tracker.inventory() }
