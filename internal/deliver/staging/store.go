// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/deadline"
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

// Prepare creates everything that c names, or nothing. A second call for the same container starts from scratch. If c
// has changed, it first removes the container.
func (s *Store) Prepare(c edit.Container) (err error) {
	if err := validateContainer(&c); err != nil {
		return err
	}
	again, err := s.removeChanged(&c)
	if err != nil {
		return s.containers.stagingError(&c, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.RemoveContainer(c.SandboxID, c.ID))
			if c.SandboxID == c.ID {
				// The runtime does not report the end of a container that never existed.
				err = errors.Join(err, s.RemoveIdleSandbox(c.SandboxID))
			}
		}
	}()
	if err := s.lock.run(func() error { return s.recordContainer(&c) }); err != nil {
		return fmt.Errorf("record container %q in state directory %q: %w", c.ID, s.dir, err)
	}
	if err := s.lock.run(func() error { return s.containers.createEntries(&c, again) }); err != nil {
		return s.containers.stagingError(&c, err)
	}
	for i := range c.SocketDirs {
		if err := s.stager.stageDir(&c, &c.SocketDirs[i]); err != nil {
			return err
		}
	}
	if err := s.sockets.hold(c.SandboxID, c.Sockets); err != nil {
		return err
	}
	for i := range c.Sockets {
		if err := s.stager.stageSocket(&c, &c.Sockets[i]); err != nil {
			return err
		}
	}
	if s.containers.status.Mode != ModeMount {
		return nil
	}
	return s.lock.run(func() error {
		s.tracker.track(&record{Owner: s.opts.Owner, Container: c})
		return s.ready.mark(&c)
	})
}

// recordContainer writes the record, before anything is created. From then on no rebinder mounts
// anything in the container's directory, until it is staged. The lock is held.
func (s *Store) recordContainer(c *edit.Container) error {
	s.tracker.untrack(c.ID)
	if err := s.ready.unmark(c.ID); err != nil {
		return err
	}
	return s.records.create(c)
}

// removeChanged removes the container if its record differs from c. again means that the record does not differ. A
// hook that runs at two stages knows the bundle only at the second, when the container has its directory mounted.
func (s *Store) removeChanged(c *edit.Container) (again bool, err error) {
	if modTime(s.records.file(c.SandboxID, c.ID)).IsZero() {
		return false, nil
	}
	r := s.records.read(c.SandboxID, c.ID)
	r.Bundle = c.Bundle
	had, err := json.Marshal(&r.Container)
	if err != nil {
		return false, err
	}
	names, err := json.Marshal(c)
	if err != nil || bytes.Equal(had, names) {
		return true, err
	}
	return false, s.RemoveContainer(c.SandboxID, c.ID)
}

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

// RemoveContainer removes a container's staging directory and record. The sandbox's socket
// directories stay. An unknown container is no error.
func (s *Store) RemoveContainer(sandboxID, containerID string) error {
	_, err := s.removeContainer(sandboxID, containerID, time.Time{})
	return err
}

// removeContainer is RemoveContainer. It removes nothing if the record was modified at another time than
// this one, unless that is zero.
func (s *Store) removeContainer(sandboxID, containerID string, modified time.Time) (removed bool, err error) {
	if err := checkIDs(sandboxID, containerID); err != nil {
		return false, err
	}
	var r *record
	err = s.lock.run(func() (err error) {
		r, err = s.removeStaging(sandboxID, containerID, modified)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("remove container %q from staging: %w", containerID, err)
	}
	if r == nil {
		return false, nil
	}
	err = s.sockets.rights.Revoke(r.Sockets, "")
	return true, errors.Join(err, s.lock.run(func() error {
		return s.records.removeUnused(sandboxID, func() (bool, error) {
			return s.sockets.dirs.ReleaseSockets(s.sockets.holder(sandboxID))
		})
	}))
}

// removeStaging unmounts and removes a container's staging directory, and then its record, which it
// returns: nil for one that was modified meanwhile. The lock is held.
func (s *Store) removeStaging(sandboxID, containerID string, modified time.Time) (*record, error) {
	file := s.records.file(sandboxID, containerID)
	if !modified.IsZero() && !modTime(file).Equal(modified) {
		return nil, nil
	}
	s.tracker.untrack(containerID)
	r := s.records.read(sandboxID, containerID)
	if err := s.ready.unmark(containerID); err != nil {
		return nil, err
	}
	if _, err := os.Lstat(filepath.Join(s.containers.dir, containerID)); !errors.Is(err, fs.ErrNotExist) {
		if err := s.containers.unmountAll(&r.Container); err != nil {
			return nil, err
		}
		if err := s.containers.removeTree(containerID); err != nil {
			return nil, err
		}
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return &r, nil
}

// RemoveContainerByID is RemoveContainer for a caller that does not know the sandbox.
func (s *Store) RemoveContainerByID(containerID string) error {
	sandboxes, err := RecordedSandboxes(s.host, s.records.hostDir, containerID)
	errs := []error{err}
	for _, sid := range sandboxes {
		errs = append(errs, s.RemoveContainer(sid, containerID))
	}
	return errors.Join(errs...)
}

// RemoveSandbox removes all of a sandbox's containers from staging, and the socket directories
// that were created for the sandbox. An unknown sandbox is no error. If a claim is damaged, one call
// returns an error, after which nothing of the sandbox is left but the directory of that claim.
func (s *Store) RemoveSandbox(sandboxID string) error {
	if err := checkID("sandbox", sandboxID); err != nil {
		return err
	}
	ids, err := RecordedContainers(s.host, s.records.hostDir, sandboxID)
	if err != nil {
		return fmt.Errorf("remove sandbox %q: %w", sandboxID, err)
	}
	var errs []error
	for _, id := range ids {
		errs = append(errs, s.RemoveContainer(sandboxID, id))
	}
	lost, err := s.sockets.dirs.RemoveAll(s.sockets.holder(sandboxID))
	if err := errors.Join(append(errs, err)...); err != nil {
		return fmt.Errorf("remove sandbox %q: %w", sandboxID, errors.Join(err, lost))
	}
	if err := errors.Join(os.RemoveAll(filepath.Join(s.records.sandboxesDir(), sandboxID)), lost); err != nil {
		return fmt.Errorf("remove sandbox %q: %w", sandboxID, err)
	}
	return nil
}

// RemoveIdleSandbox is RemoveSandbox for a sandbox without containers. It leaves any other sandbox unchanged.
func (s *Store) RemoveIdleSandbox(sandboxID string) error {
	if err := checkID("sandbox", sandboxID); err != nil {
		return err
	}
	if ids, err := RecordedContainers(s.host, s.records.hostDir, sandboxID); err != nil || len(ids) > 0 {
		return err
	}
	return s.RemoveSandbox(sandboxID)
}

// Retain removes this owner's sandboxes and containers that do not exist any more, and staging directories without a
// record. It is for the start of a process, after the runtime has reported the existing containers. It tracks all
// other containers, of any owner: sockets that were re-created meanwhile are rebound, and all are watched.
//
// A container that was recorded a moment ago, of a sandbox that exists, stays: the runtime can
// be creating it. If it was never created, it is removed with its sandbox.
//
// asOf is when the runtime's report arrived. Retain can run later, while containers are created that the report does
// not know, so everything recorded after asOf stays. The zero time is for a report that knows everything.
func (s *Store) Retain(asOf time.Time, aliveSandbox, aliveContainer func(id string) bool) error {
	sandboxes, err := listNames(s.records.sandboxesDir())
	if err != nil {
		return err
	}
	known := make(map[string]bool)
	var errs []error
	var removals []func() error // once all others are tracked: a removal can wait for a file system
	if s.opts.Watch && s.containers.status.Mode == ModeMount {
		errs = append(errs, s.lock.run(s.containers.finishInterruptedSwaps))
	}
	for _, sid := range sandboxes {
		stays := aliveSandbox(sid) || changedSince(asOf, filepath.Join(s.records.sandboxesDir(), sid))
		ids, err := RecordedContainers(s.host, s.records.hostDir, sid)
		errs = append(errs, err)
		foreign := false
		for _, cid := range ids {
			switch r := s.records.read(sid, cid); {
			case r.Owner != s.opts.Owner:
				foreign = true
			case !stays:
				continue
			case changedSince(asOf, s.records.file(sid, cid)):
				known[cid] = true // Prepare tracks it
				continue
			case !aliveContainer(cid) && time.Since(modTime(s.records.file(sid, cid))) > maxCreationTime:
				removals = append(removals, func() error { return s.RemoveContainer(sid, cid) })
				continue
			}
			known[cid] = true
			errs = append(errs, s.tracker.trackRecorded(sid, cid))
		}
		if !foreign && !stays {
			removals = append(removals, func() error { return s.RemoveSandbox(sid) })
		}
	}
	for _, remove := range removals {
		errs = append(errs, remove())
	}
	errs = append(errs, s.sockets.rights.Sweep(), s.SweepClaims())
	containers, err := listNames(s.containers.dir)
	errs = append(errs, err)
	for _, cid := range containers {
		if !known[cid] && !aliveContainer(cid) && !changedSince(asOf, filepath.Join(s.containers.dir, cid)) {
			errs = append(errs, s.lock.run(func() error { return s.containers.removeTree(cid) }))
		}
	}
	return errors.Join(errs...)
}

// Orphans lists this owner's containers that the runtime never had removed: their record is older than age, and no
// process of the host has their staging directory mounted. It leaves out containers whose processes this process
// cannot see, and containers that were recorded before a process started that this process may not inspect. A search
// that takes longer than timeout is an error.
func (s *Store) Orphans(age, timeout time.Duration) ([]Orphan, error) {
	old, err := s.records.listOld(time.Now().Add(-age))
	if err != nil || !slices.ContainsFunc(old, Orphan.isContainer) {
		return old, err
	}
	scan, err := scanMounts(s.containers.dir, timeout)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(old, func(l Orphan) bool {
		return l.isContainer() && !scan.isUnmounted(l.Container, l.recordedAt)
	}), nil
}

// Sweep removes the [Store.Orphans] and returns how many containers and sandboxes it removed.
func (s *Store) Sweep(age, timeout time.Duration) (int, error) {
	orphans, err := s.Orphans(age, timeout)
	if err != nil {
		return 0, err
	}
	n := 0
	var errs []error
	for _, l := range orphans {
		ok, err := s.removeOrphan(l)
		if ok {
			n++
		}
		errs = append(errs, err)
	}
	errs = append(errs, s.ready.removeUnfinished(s.lock), s.SweepClaims())
	return n, errors.Join(errs...)
}

// SweepIfDue is Sweep with [MinOrphanAge], unless a process did that within this time. It also revokes the
// access to sockets that a crash left, as [Store.Retain] does in a process that runs longer. An unresponsive
// socket root delays it by timeout at most.
func (s *Store) SweepIfDue(timeout time.Duration) (int, error) {
	file := filepath.Join(s.dir, lastSweepFile)
	now := time.Now()
	if now.Sub(modTime(file)).Abs() < MinOrphanAge {
		return 0, nil
	}
	// Set the time first, so that one of many concurrent processes sweeps.
	if err := hostfs.CreateFile(file, nil, 0o600); err != nil {
		return 0, err
	}
	if err := os.Chtimes(file, time.Time{}, now); err != nil {
		return 0, err
	}
	n, err := s.Sweep(MinOrphanAge, timeout)
	if swept := deadline.Within(timeout, s.sockets.rights.Sweep); swept != nil {
		err = errors.Join(err, fmt.Errorf("sweep the rights of containers that are gone: %w", swept))
	}
	return n, err
}

// SweepClaims removes this store's claims of sandboxes that it has no record of. Only a crash
// or a lost record leaves such claims.
func (s *Store) SweepClaims() error { return s.sockets.sweepClaims() }

// removeOrphan removes an orphan, unless its record was written again meanwhile.
func (s *Store) removeOrphan(l Orphan) (removed bool, err error) {
	if !l.isContainer() {
		if !modTime(filepath.Join(s.records.sandboxesDir(), l.Sandbox)).Equal(l.modified) {
			return false, nil
		}
		return true, s.RemoveIdleSandbox(l.Sandbox)
	}
	removed, err = s.removeContainer(l.Sandbox, l.Container, l.modified)
	if removed && err == nil && l.Container == l.Sandbox {
		err = s.RemoveIdleSandbox(l.Sandbox)
	}
	return removed, err
}

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

const (
	// maxCreationTime is longer than a runtime takes to create a container that it does not report yet.
	maxCreationTime = 2 * time.Minute
	// clockGranularity bounds how far the time stamps of a file system lag behind the clock.
	clockGranularity = 20 * time.Millisecond
)

// changedSince reports whether a file or directory was created or changed after asOf.
func changedSince(asOf time.Time, path string) bool {
	return !asOf.IsZero() && modTime(path).After(asOf.Add(-clockGranularity))
}
