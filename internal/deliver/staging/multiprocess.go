// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/deliver/sockdir"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/host/watch"
)

// Many processes can share a state directory: short-lived ones that stage and remove
// containers, and one, the rebinder, that rebinds the sockets of all of them. A shared state
// directory has in addition
//
//	<state>/ready/<containerID>   the sandbox's ID, once all of the container's mounts exist
//	<state>/lock                  locked (flock) by the process that mounts or unmounts
//	<state>/keeper                locked by the rebinder for as long as it runs
//
// The kernel releases the locks of a process that ends.

const (
	lockFile     = "lock"
	rebinderFile = "keeper"
)

// HookOwner is the owner of containers that the OCI hook stages.
const HookOwner = sockdir.Hook

// InjectOwner is the owner of containers that "jackfield inject" stages.
const InjectOwner = sockdir.Inject

// InjectDir returns the state directory of "jackfield inject" in that of a node.
func InjectDir(stateDir string) string { return filepath.Join(stateDir, "inject") }

// HookDir returns the shared state directory of the OCI hook in that of a node. It is apart
// from the state of the NRI plugin, which removes every container that its runtime does not
// know.
func HookDir(stateDir string) string { return filepath.Join(stateDir, "hook") }

func (s *Store) readyDir() string { return filepath.Join(s.dir, "ready") }

// locked runs f under the store's lock and, in a shared state directory, the lock of all processes.
func (s *Store) locked(f func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opts.Shared {
		fd, err := openLocked(filepath.Join(s.dir, lockFile), unix.O_CREAT, unix.LOCK_EX)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
	}
	return f()
}

// openLocked opens a file or directory with additional flags, and locks it.
func openLocked(file string, flags, how int) (int, error) {
	// Read-only: a file system with a file open for writing cannot be remounted read-only.
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|flags, 0o600)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: file, Err: err}
	}
	if err := hostfs.Flock(fd, how); err != nil {
		unix.Close(fd)
		return -1, &os.PathError{Op: "lock", Path: file, Err: err}
	}
	return fd, nil
}

// RebinderRunning reports whether a process runs that rebinds the sockets of a state directory.
func RebinderRunning(host hostfs.Root, stateDir string) bool {
	fd, err := openLocked(filepath.Join(host.Path(stateDir), rebinderFile), 0, unix.LOCK_SH|unix.LOCK_NB)
	if err == nil {
		unix.Close(fd)
	}
	return errors.Is(err, unix.EWOULDBLOCK)
}

// IsReady reports whether all mounts of a container exist in a shared state directory.
func IsReady(host hostfs.Root, stateDir, containerID string) bool {
	if checkID("container", containerID) != nil {
		return false
	}
	var st unix.Stat_t
	return unix.Lstat(filepath.Join(host.Path(stateDir), "ready", containerID), &st) == nil
}

// BecomeRebinder makes this process the rebinder of the state directory until Close. It returns
// false while another process is the rebinder.
func (s *Store) BecomeRebinder() (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rebinderLock >= 0 {
		return true, nil
	}
	if s.closed {
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

// markReady tells the rebinder that a container's mounts exist. The lock is held.
func (s *Store) markReady(c *edit.Container) error {
	if !s.opts.Shared {
		return nil
	}
	return hostfs.ReplaceFile(filepath.Join(s.readyDir(), c.ID), []byte(c.SandboxID), viewFile)
}

// unmarkReady tells the rebinder to ignore a container that is about to change. The lock is
// held.
func (s *Store) unmarkReady(containerID string) error {
	if !s.opts.Shared {
		return nil
	}
	if err := unix.Unlink(filepath.Join(s.readyDir(), containerID)); err != nil && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "unlink", Path: filepath.Join(s.readyDir(), containerID), Err: err}
	}
	return nil
}

// watchReadyDir tracks the containers of other processes, present and future.
func (s *Store) watchReadyDir() error {
	if _, err := s.watchers[false].Add(s.host.Canonical(s.hostDir+"/ready"), "", watch.Removed, s.onReadyEvent); err != nil {
		return err
	}
	s.onReadyEvent("")
	return nil
}

// onReadyEvent handles a ready file that appeared or disappeared. The name "" stands for all.
func (s *Store) onReadyEvent(name string) {
	names := []string{name}
	if name == "" {
		var err error
		if names, err = listNames(s.readyDir()); err != nil {
			s.reportFailure(fmt.Errorf("list containers of other processes: %w", err))
			return
		}
		names = append(names, s.TrackedContainers()...)
	}
	for _, name := range names {
		if !hostfs.IsUnfinished(name) {
			s.trackIfReady(name)
		}
	}
}

// trackIfReady tracks a container that is ready, and untracks one that is not.
func (s *Store) trackIfReady(containerID string) {
	sandbox, err := os.ReadFile(filepath.Join(s.readyDir(), containerID))
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.untrackContainer(containerID)
		return
	}
	err = checkIDs(string(sandbox), containerID)
	if err == nil {
		r := s.readRecord(string(sandbox), containerID)
		if err = validateContainer(&r.Container); err == nil {
			s.trackContainer(&r)
			return
		}
	}
	s.untrackContainer(containerID)
	s.reportFailure(fmt.Errorf("track container %q of another process: %w", containerID, err))
}

// isRemoved reports whether another process is removing or has removed a container. The lock
// is held.
func (s *Store) isRemoved(containerID string) bool {
	return s.opts.Shared && !IsReady(s.host, s.hostDir, containerID)
}

// ensureSharedMount makes the shared mount again, after the process that removed the last
// container unmounted it. The lock is held.
func (s *Store) ensureSharedMount() error {
	if !s.opts.Shared || s.status.Mode != ModeMount || isMountRoot(s.containersDir()) {
		return nil
	}
	if err := s.makeSharedMount(); err != nil {
		return fmt.Errorf("stage sockets as mounts: %w", err)
	}
	return nil
}

// isMountRoot reports whether a path is a mount point. Kernels before 5.8 always say no.
func isMountRoot(path string) bool {
	var st unix.Statx_t
	return unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, 0, &st) == nil && st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}
