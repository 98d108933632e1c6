// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
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
			if c.SandboxID == c.ID {
				// Nobody reports the end of a container that never was.
				err = errors.Join(err, s.RemoveIdleSandbox(c.SandboxID))
			}
		}
	}()
	c.SocketDirs = slices.Clone(c.SocketDirs)
	if err := s.makeSocketDirs(c.SandboxID, c.SocketDirs); err != nil {
		return err
	}
	var done progress
	for misses, losses := 0, 0; ; {
		// What is gone between the look and the mount was a socket that the host side
		// makes anew at this moment.
		lost, err := s.stage(&c, &done)
		if !lost && !errors.Is(err, unix.ENOENT) {
			return err
		}
		if lost {
			losses++
		} else {
			misses++
			done = progress{}
		}
		if misses == attempts || losses == attemptsLost {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// attempts are made to look at a container's sockets and bind them, a millisecond
// apart, where something is not there, and attemptsLost where a socket was there and
// gone before it was bound: each of these is as likely to lose as the one before.
const attempts, attemptsLost = 5, 100

// progress is what has been made of a container.
type progress struct {
	filled  bool // its directory, and what is in it but for sockets
	sockets int  // the first of them
}

// stage opens what the container gets, makes its directory, and binds it there. Where a
// socket is lost, which is gone before it is bound, all before it is made, so that the
// next attempt has no more to do between its look and its mount than it must.
func (s *Store) stage(c *Container, done *progress) (lost bool, err error) {
	opened, err := s.openAll(c, done)
	if err != nil {
		return false, err
	}
	defer opened.close()
	unlock, err := s.lock()
	if err != nil {
		return false, err
	}
	defer unlock()
	defer func() {
		if err != nil {
			err = fmt.Errorf("make staging of container %q in state directory %q: %w", c.ID, s.dir, err)
		}
	}()
	if err := s.again(); err != nil {
		return false, err
	}
	if !done.filled {
		if err := s.fill(c); err != nil {
			return false, err
		}
		if s.status.Mode != Mounts {
			return false, s.makePlaceholders(c)
		}
		if err := s.bindDirs(c, opened); err != nil {
			return false, err
		}
		done.filled = true
	}
	for ; done.sockets < len(c.Sockets); done.sockets++ {
		if lost, err := s.bindSocket(c, &c.Sockets[done.sockets], opened.sockets[done.sockets]); err != nil {
			return lost, err
		}
	}
	s.hold(&record{Owner: s.opts.Owner, Container: *c})
	return false, s.announce(c)
}

// makePlaceholders makes the files that the runtime mounts sockets on, where mounts are
// not staged.
func (s *Store) makePlaceholders(c *Container) error {
	for i := range c.Sockets {
		for _, at := range c.Sockets[i].At {
			if err := placeholder(filepath.Join(s.containers(), c.ID, at)); err != nil {
				return err
			}
		}
	}
	return nil
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
