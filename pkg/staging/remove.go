// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// RemoveContainer removes a container's staging. The sandbox's socket
// directories stay. A container that is not known is no error.
func (s *Store) RemoveContainer(sandboxID, containerID string) error {
	if err := errors.Join(checkID("container", containerID), checkID("sandbox", sandboxID)); err != nil {
		return err
	}
	if err := s.removeStaging(sandboxID, containerID); err != nil {
		return fmt.Errorf("remove staging of container %q: %w", containerID, err)
	}
	r := s.readRecord(sandboxID, containerID)
	if err := os.Remove(s.recordFile(sandboxID, containerID)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove staging of container %q: %w", containerID, err)
	}
	return errors.Join(s.revokeAccess(r.Sockets, ""), s.forget(sandboxID))
}

// RemoveContainerOfAny is RemoveContainer for whoever does not know the sandbox.
func (s *Store) RemoveContainerOfAny(containerID string) error {
	sandboxes, err := readNames(s.sandboxes())
	errs := []error{err}
	for _, sid := range sandboxes {
		if _, err := os.Lstat(s.recordFile(sid, containerID)); err == nil {
			errs = append(errs, s.RemoveContainer(sid, containerID))
		}
	}
	return errors.Join(errs...)
}

// RemoveSandbox removes the staging of all of a sandbox's containers and the
// socket directories that were made for it. An unknown sandbox is no error. That the
// list of these directories was lost is told once: nothing of the sandbox is left then.
func (s *Store) RemoveSandbox(sandboxID string) error {
	if err := checkID("sandbox", sandboxID); err != nil {
		return err
	}
	sandbox := filepath.Join(s.sandboxes(), sandboxID)
	names, err := readNames(sandbox)
	if err != nil {
		return fmt.Errorf("remove sandbox %q: %w", sandboxID, err)
	}
	var errs []error
	var sockets []Socket
	for _, name := range names {
		if id, ok := strings.CutSuffix(name, containerSuffix); ok {
			errs = append(errs, s.removeStaging(sandboxID, id))
			sockets = append(sockets, s.readRecord(sandboxID, id).Sockets...)
		}
	}
	lost, err := s.removeSocketDirs(sandboxID)
	if err := errors.Join(append(errs, err)...); err != nil {
		return fmt.Errorf("remove sandbox %q: %w", sandboxID, errors.Join(err, lost))
	}
	if err := errors.Join(os.RemoveAll(sandbox), s.revokeAccess(sockets, ""), lost); err != nil {
		return fmt.Errorf("remove sandbox %q: %w", sandboxID, err)
	}
	return nil
}

// RemoveIdleSandbox is RemoveSandbox for one that has no container any more; of any
// other it leaves everything.
func (s *Store) RemoveIdleSandbox(sandboxID string) error {
	if err := checkID("sandbox", sandboxID); err != nil {
		return err
	}
	names, err := readNames(filepath.Join(s.sandboxes(), sandboxID))
	if err != nil || slices.ContainsFunc(names, func(n string) bool { return strings.HasSuffix(n, containerSuffix) }) {
		return err
	}
	return s.RemoveSandbox(sandboxID)
}

// removeStaging unmounts what is in a container's directory and removes it.
func (s *Store) removeStaging(sandboxID, containerID string) error {
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	return s.removeLocked(sandboxID, containerID)
}

func (s *Store) removeLocked(sandboxID, containerID string) error {
	s.release(containerID)
	if err := s.retract(containerID); err != nil {
		return err
	}
	dir := filepath.Join(s.containers(), containerID)
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if s.status.Mode == Mounts {
		r := s.readRecord(sandboxID, containerID)
		if err := s.unmountAll(&r.Container); err != nil {
			return err
		}
	}
	return s.removeTree(containerID)
}

// unmountAll unmounts all that can be mounted in a container's directory: what the
// record names.
func (s *Store) unmountAll(c *Container) error {
	dir := filepath.Join(s.containers(), c.ID)
	var errs []error
	for _, p := range c.points() {
		errs = append(errs, detach(filepath.Join(dir, p)))
	}
	return errors.Join(errs...)
}

// removeTree removes a container's directory. What is mounted in it still, which
// no record told of, is unmounted and not gone into: behind a mount lie the host's
// own files.
func (s *Store) removeTree(containerID string) error {
	dirfd, err := unix.Open(s.containers(), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: s.containers(), Err: err}
	}
	defer unix.Close(dirfd)
	return removeAt(dirfd, s.containers(), containerID, 0)
}

// maxDepth is more than any staging directory has.
const maxDepth = 16

func removeAt(dirfd int, dir, name string, depth int) error {
	path := filepath.Join(dir, name)
	err := unix.Unlinkat(dirfd, name, 0)
	if errors.Is(err, unix.EBUSY) {
		if err = detach(path); err == nil {
			err = unix.Unlinkat(dirfd, name, 0)
		}
	}
	switch {
	case err == nil, errors.Is(err, unix.ENOENT):
		return nil
	case !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM):
		return &os.PathError{Op: "unlink", Path: path, Err: err}
	case depth > maxDepth:
		return fmt.Errorf("remove %q: %d directories deep: %w", path, depth, errdefs.ErrResourceExhausted)
	}
	fd, err := openToEmpty(dirfd, name)
	if errors.Is(err, unix.EXDEV) {
		if err := detach(path); err != nil {
			return err
		}
		fd, err = openToEmpty(dirfd, name)
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	names, err := f.Readdirnames(-1)
	for _, n := range names {
		err = errors.Join(err, removeAt(fd, path, n, depth+1))
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	err = unix.Unlinkat(dirfd, name, unix.AT_REMOVEDIR)
	if errors.Is(err, unix.EBUSY) {
		if err = detach(path); err == nil {
			err = unix.Unlinkat(dirfd, name, unix.AT_REMOVEDIR)
		}
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "rmdir", Path: path, Err: err}
	}
	return nil
}

// openToEmpty opens a directory whose entries are to be removed: no symlink that took its place (ELOOP), and nothing that is mounted there (EXDEV).
func openToEmpty(dirfd int, name string) (int, error) {
	return unix.Openat2(dirfd, name, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV})
}

// Retain removes every sandbox for which alive is false, every container of the
// others for which it is false, and staging that no record tells of. It is for the
// start, when the runtime has said what lives: containers of this owner. What
// lives, whoever's it is, is held from then on: sockets that the host side made
// anew meanwhile are bound anew, and all are watched. What was recorded a moment ago
// for a sandbox that lives counts as alive: its container may be in the making, which
// the runtime does not tell of; if it never was made, it goes with the sandbox.
func (s *Store) Retain(aliveSandbox, aliveContainer func(id string) bool) error {
	sandboxes, err := readNames(s.sandboxes())
	if err != nil {
		return err
	}
	known := make(map[string]bool)
	var errs []error
	if s.opts.Watch && s.status.Mode == Mounts {
		s.mu.Lock()
		errs = append(errs, s.settle())
		s.mu.Unlock()
	}
	for _, sid := range sandboxes {
		names, err := readNames(filepath.Join(s.sandboxes(), sid))
		errs = append(errs, err)
		foreign := false
		for _, name := range names {
			cid, ok := strings.CutSuffix(name, containerSuffix)
			if !ok {
				continue
			}
			switch r := s.readRecord(sid, cid); {
			case r.Owner != s.opts.Owner:
				foreign = true
			case !aliveSandbox(sid):
				continue
			case !aliveContainer(cid) && !s.inTheMaking(sid, cid):
				errs = append(errs, s.RemoveContainer(sid, cid))
				continue
			}
			known[cid] = true
			errs = append(errs, s.holdRecorded(sid, cid), s.recover(sid, cid))
		}
		if !foreign && !aliveSandbox(sid) {
			errs = append(errs, s.RemoveSandbox(sid))
		}
	}
	errs = append(errs, s.sweepRights(), s.SweepClaims())
	containers, err := readNames(s.containers())
	errs = append(errs, err)
	for _, cid := range containers {
		if !known[cid] && !aliveContainer(cid) {
			s.mu.Lock()
			errs = append(errs, s.removeTree(cid))
			s.mu.Unlock()
		}
	}
	return errors.Join(errs...)
}

// making is longer than a runtime takes from the request for a container to the
// container.
const making = 2 * time.Minute

// inTheMaking reports whether a container was recorded so lately that the runtime
// may still be at work on it.
func (s *Store) inTheMaking(sandboxID, containerID string) bool {
	fi, err := os.Lstat(s.recordFile(sandboxID, containerID))
	return err == nil && time.Since(fi.ModTime()) < making
}

// asked puts in front what asks for something.
func asked(from string, err error) error {
	if err == nil || from == "" {
		return err
	}
	return fmt.Errorf("%s: %w", from, err)
}

// openIn opens a path below a socket root, following no symlink.
func (s *Store) openIn(root, rel string, flags int) (int, error) {
	f, err := s.host.OpenNoSymlinks(root, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return -1, err
	}
	defer f.Close()
	fd, err := hostfs.OpenatBeneath(int(f.Fd()), rel, flags)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: filepath.Join(root, rel), Err: err}
	}
	return fd, nil
}
