// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
	"github.com/jackfield/jackfield/pkg/pathwatch"
)

// A state directory can be one of many processes: those that make and remove
// containers and end, and one that keeps the sockets of all of them alive. Beside
// what every state directory has, it has
//
//	<state>/ready/<containerID>   the sandbox's ID, once all of the container's mounts are there
//	<state>/lock                  held (flock) by whoever mounts or unmounts
//	<state>/keeper                held by the process that binds sockets anew, while it lives
//
// The kernel lets go of a lock with its process: nobody is taken for alive who is not.

const (
	lockFile   = "lock"
	keeperFile = "keeper"
)

// HookOwner is the owner of containers that the OCI hook serves.
const HookOwner = "hook"

// InjectOwner is the owner of containers that "jackfield inject" serves.
const InjectOwner = "inject"

// InjectDir is the state directory of "jackfield inject", in that of a node.
func InjectDir(stateDir string) string { return filepath.Join(stateDir, "inject") }

// HookDir is the shared state directory of the OCI hook, in that of a node. It is
// beside what the NRI plugin keeps, which removes all that its runtime does not know.
func HookDir(stateDir string) string { return filepath.Join(stateDir, "hook") }

func (s *Store) ready() string { return filepath.Join(s.dir, "ready") }

// lock is the store's lock and, in a shared state directory, that of all processes.
func (s *Store) lock() (unlock func(), err error) {
	s.mu.Lock()
	if !s.opts.Shared {
		return s.mu.Unlock, nil
	}
	fd, err := s.flock(lockFile, unix.LOCK_EX)
	if err != nil {
		s.mu.Unlock()
		return nil, err
	}
	return func() {
		unix.Close(fd)
		s.mu.Unlock()
	}, nil
}

// flock opens a file of the state directory and locks it.
func (s *Store) flock(name string, how int) (int, error) {
	file := filepath.Join(s.dir, name)
	// Read-only: a file system with a file open for writing cannot be remounted read-only.
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: file, Err: err}
	}
	for {
		err = unix.Flock(fd, how)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		unix.Close(fd)
		return -1, &os.PathError{Op: "lock", Path: file, Err: err}
	}
	return fd, nil
}

// Kept reports whether a process lives that binds the sockets of this state
// directory anew.
func Kept(host hostfs.Root, stateDir string) bool {
	fd, err := unix.Open(filepath.Join(host.Path(stateDir), keeperFile), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return errors.Is(unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// Announced reports whether a container's sockets are bound in its directory of a
// shared state directory.
func Announced(host hostfs.Root, stateDir, containerID string) bool {
	if checkID("container", containerID) != nil {
		return false
	}
	var st unix.Stat_t
	return unix.Lstat(filepath.Join(host.Path(stateDir), "ready", containerID), &st) == nil
}

// Keep makes this process the one that binds sockets anew; false while another one
// is that. It lasts until Close.
func (s *Store) Keep() (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keeper >= 0 {
		return true, nil
	}
	if s.closed {
		return false, os.ErrClosed
	}
	fd, err := s.flock(keeperFile, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("keep sockets alive in state directory %q: %w", s.dir, err)
	}
	s.keeper = fd
	return true, nil
}

// announce tells the keeper of a container whose mounts are there. The lock is held.
func (s *Store) announce(c *Container) error {
	if !s.opts.Shared {
		return nil
	}
	return s.replace(s.ready(), c.ID, []byte(c.SandboxID))
}

// retract takes that back, before anything of the container changes. The lock is held.
func (s *Store) retract(containerID string) error {
	if !s.opts.Shared {
		return nil
	}
	if err := unix.Unlink(filepath.Join(s.ready(), containerID)); err != nil && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "unlink", Path: filepath.Join(s.ready(), containerID), Err: err}
	}
	return nil
}

// adopt watches for containers that other processes make and remove, and takes up
// those that are there.
func (s *Store) adopt() error {
	if _, err := s.watch[ofHost].Add(s.host.Canonical(s.hostDir+"/ready"), "", pathwatch.Removed, s.taken); err != nil {
		return err
	}
	s.taken("")
	return nil
}

// taken looks at an announcement that came or went; "" stands for all of them.
func (s *Store) taken(name string) {
	if strings.HasPrefix(name, ".") {
		return // being written
	}
	if name != "" {
		s.take(name)
		return
	}
	names, err := readNames(s.ready())
	if err != nil {
		s.failed(fmt.Errorf("take up containers of other processes: %w", err))
		return
	}
	for _, name := range append(names, s.Held()...) {
		if !strings.HasPrefix(name, ".") {
			s.take(name)
		}
	}
}

// take holds a container that is announced, and lets go of one that is not.
func (s *Store) take(containerID string) {
	sandbox, err := os.ReadFile(filepath.Join(s.ready(), containerID))
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.release(containerID)
		return
	}
	err = errors.Join(checkID("container", containerID), checkID("sandbox", string(sandbox)))
	if err == nil {
		r := s.readRecord(string(sandbox), containerID)
		if err = r.check(); err == nil {
			s.hold(&r)
			return
		}
	}
	s.release(containerID)
	s.failed(fmt.Errorf("take up container %q of another process: %w", containerID, err))
}

// departed reports whether a container of another process is not to be touched any
// more. The lock is held.
func (s *Store) departed(containerID string) bool {
	if !s.opts.Shared {
		return false
	}
	_, err := os.Lstat(filepath.Join(s.ready(), containerID))
	return err != nil
}

// again readies the directory of all containers once more, where the process that
// removed the last container took its mount away. The lock is held.
func (s *Store) again() error {
	if !s.opts.Shared || s.status.Mode != Mounts || mountRoot(s.containers()) {
		return nil
	}
	if err := s.readyMount(s.opts.Mode); err != nil {
		return fmt.Errorf("stage sockets as mounts: %w", err)
	}
	return nil
}

// mountRoot reports whether a mount begins at a path (Linux 5.8; before, it says no).
func mountRoot(path string) bool {
	var st unix.Statx_t
	return unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, 0, &st) == nil && st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}
