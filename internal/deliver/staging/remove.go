// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// This file removes containers and sandboxes. A container's record is removed after its directory, so that a removal
// that failed or was killed is repeated. Access to sockets is revoked without the store's lock, because the host's file
// systems may be slow.

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
