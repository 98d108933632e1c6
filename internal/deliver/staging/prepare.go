// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackfield/jackfield/internal/edit"
)

// This file stages a container. The record comes first, so that a removal after a crash finds everything. The mark of
// readiness comes last: a process that watches the state directory of many processes rebinds no socket before it.

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
