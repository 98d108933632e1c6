// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Prepare makes everything c names, or nothing. It may be called again for the
// same container, which begins from nothing then.
func (s *Store) Prepare(c Container) (err error) {
	if err := c.check(); err != nil {
		return err
	}
	if err := s.begin(&c); err != nil {
		return fmt.Errorf("record container %q in state directory %q: %w", c.ID, s.dir, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.RemoveContainer(c.SandboxID, c.ID))
		}
	}()
	if err := s.makeSocketDirs(c.SandboxID, c.SocketDirs); err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		// What is gone between the look and the mount was a socket that the host side
		// makes anew at this moment.
		seen, err := s.stage(&c)
		if !errors.Is(err, unix.ENOENT) || attempt >= attempts && !seen || attempt == attemptsSeen {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// attempts are made to look at a container's sockets and bind them, a millisecond
// apart; attemptsSeen where they were there each time, and gone before they were bound:
// on a busy machine much can happen in between.
const attempts, attemptsSeen = 5, 50

// stage opens what the container gets, makes its directory, and binds it there. seen
// says that all was there to be opened.
func (s *Store) stage(c *Container) (seen bool, err error) {
	opened, err := s.openAll(c)
	if err != nil {
		return false, err
	}
	defer opened.close()
	unlock, err := s.lock()
	if err != nil {
		return true, err
	}
	defer unlock()
	if err := s.again(); err != nil {
		return true, err
	}
	if err := s.fill(c); err != nil {
		return true, fmt.Errorf("make staging of container %q in state directory %q: %w", c.ID, s.dir, err)
	}
	if s.status.Mode != Mounts {
		return true, nil
	}
	if err := s.bindAll(c, opened); err != nil {
		return true, fmt.Errorf("make staging of container %q in state directory %q: %w", c.ID, s.dir, err)
	}
	s.hold(&record{Owner: s.opts.Owner, Container: *c})
	return true, s.announce(c)
}

// begin writes down what is about to be made, while nobody else changes anything.
func (s *Store) begin(c *Container) error {
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := s.retract(c.ID); err != nil {
		return err
	}
	return s.note(c)
}

// note writes down what is about to be made.
func (s *Store) note(c *Container) error {
	if err := unix.Mkdir(filepath.Join(s.sandboxes(), c.SandboxID), privateDir); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	r := record{Owner: s.opts.Owner, Container: *c}
	if s.opts.Shared {
		r.See = here()
	}
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := create(s.recordFile(c.SandboxID, c.ID), data, 0o600); err != nil {
		return err
	}
	return s.noteBundle(c)
}

// fill makes the container's directory with the directories and files in it.
func (s *Store) fill(c *Container) error {
	dir := filepath.Join(s.containers(), c.ID)
	fresh, err := s.mkdir(dir)
	if err != nil {
		return err
	}
	if !fresh && s.status.Mode == Mounts {
		if err := s.unmountAll(c); err != nil {
			return err
		}
	}
	for _, d := range c.Dirs {
		if err := s.mkdirs(dir, d.Path); err != nil {
			return err
		}
	}
	for _, f := range c.Files {
		// Nobody reads in a directory that was made a moment ago.
		write := s.replace
		if fresh {
			write = s.write
		}
		if err := write(dir, f.Name, f.Data); err != nil {
			return err
		}
	}
	return nil
}
