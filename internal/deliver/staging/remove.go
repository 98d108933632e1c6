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

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

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
	err = s.locked(func() (err error) {
		r, err = s.removeStaging(sandboxID, containerID, modified)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("remove container %q from staging: %w", containerID, err)
	}
	if r == nil {
		return false, nil
	}
	err = s.rights.Revoke(r.Sockets, "")
	return true, errors.Join(err, s.locked(func() error { return s.removeUnusedSandboxRecord(sandboxID) }))
}

// removeStaging unmounts and removes a container's staging directory, and then its record, which it
// returns: nil for one that was modified meanwhile. The lock is held.
func (s *Store) removeStaging(sandboxID, containerID string, modified time.Time) (*record, error) {
	file := s.recordFile(sandboxID, containerID)
	if !modified.IsZero() && !modTime(file).Equal(modified) {
		return nil, nil
	}
	s.untrackContainer(containerID)
	r := s.readRecord(sandboxID, containerID)
	if err := s.unmarkReady(containerID); err != nil {
		return nil, err
	}
	if _, err := os.Lstat(filepath.Join(s.containersDir(), containerID)); !errors.Is(err, fs.ErrNotExist) {
		if err := s.unmountAll(&r.Container); err != nil {
			return nil, err
		}
		if err := s.removeTree(containerID); err != nil {
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
	sandboxes, err := RecordedSandboxes(s.host, s.hostDir, containerID)
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
	ids, err := RecordedContainers(s.host, s.hostDir, sandboxID)
	if err != nil {
		return fmt.Errorf("remove sandbox %q: %w", sandboxID, err)
	}
	var errs []error
	for _, id := range ids {
		errs = append(errs, s.RemoveContainer(sandboxID, id))
	}
	lost, err := s.dirs.RemoveAll(s.holder(sandboxID))
	if err := errors.Join(append(errs, err)...); err != nil {
		return fmt.Errorf("remove sandbox %q: %w", sandboxID, errors.Join(err, lost))
	}
	if err := errors.Join(os.RemoveAll(filepath.Join(s.sandboxesDir(), sandboxID)), lost); err != nil {
		return fmt.Errorf("remove sandbox %q: %w", sandboxID, err)
	}
	return nil
}

// RemoveIdleSandbox is RemoveSandbox for a sandbox without containers. It leaves any other
// sandbox unchanged.
func (s *Store) RemoveIdleSandbox(sandboxID string) error {
	if err := checkID("sandbox", sandboxID); err != nil {
		return err
	}
	if ids, err := RecordedContainers(s.host, s.hostDir, sandboxID); err != nil || len(ids) > 0 {
		return err
	}
	return s.RemoveSandbox(sandboxID)
}

// unmountAll unmounts everything in a container's directory that its record names. Without staged
// mounts there is nothing.
func (s *Store) unmountAll(c *edit.Container) error {
	if s.status.Mode != ModeMount {
		return nil
	}
	dir := filepath.Join(s.containersDir(), c.ID)
	var errs []error
	for _, p := range mountPoints(c) {
		errs = append(errs, unmountStack(filepath.Join(dir, p)))
	}
	return errors.Join(errs...)
}

// removeTree removes a container's directory. A mount that no record names is unmounted and
// never entered: it has files of the host.
func (s *Store) removeTree(containerID string) error {
	dirfd, err := unix.Open(s.containersDir(), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: s.containersDir(), Err: err}
	}
	defer unix.Close(dirfd)
	err = hostfs.RemoveTreeAt(dirfd, containerID)
	if !errors.Is(err, unix.EBUSY) {
		return err
	}
	if err := unmountBelow(dirfd, containerID); err != nil {
		return err
	}
	return hostfs.RemoveTreeAt(dirfd, containerID)
}

// unmountBelow unmounts everything in an entry of an open directory, the newest first.
func unmountBelow(dirfd int, name string) error {
	dir, err := os.Readlink(hostfs.DescriptorPath(dirfd)) // as the kernel shows mount points
	if err != nil {
		return err
	}
	mounts, err := hostfs.Mounts()
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range slices.Backward(mounts) {
		if strings.HasPrefix(m.Point+"/", filepath.Join(dir, name)+"/") {
			errs = append(errs, unmountStack(m.Point))
		}
	}
	return errors.Join(errs...)
}
