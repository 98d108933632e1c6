// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// Prepare creates everything that c names, or nothing. A second call for the same container
// starts from scratch.
func (s *Store) Prepare(c Container) (err error) {
	if err := c.validate(); err != nil {
		return err
	}
	if err := s.recordContainer(&c); err != nil {
		return fmt.Errorf("record container %q in state directory %q: %w", c.ID, s.dir, err)
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
	c.SocketDirs = slices.Clone(c.SocketDirs)
	if err := s.makeSocketDirs(c.SandboxID, c.SocketDirs); err != nil {
		return err
	}
	var done stageProgress
	for misses, losses := 0, 0; ; {
		// A vswitch is re-creating a socket that disappears between its check and its mount.
		lost, err := s.stageContainer(&c, &done)
		if !lost && !errors.Is(err, unix.ENOENT) {
			return err
		}
		if lost {
			losses++
		} else {
			misses++
			done = stageProgress{}
		}
		if misses == maxAttempts || losses == maxLostAttempts {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// maxAttempts limits how often a container's sockets are opened and bound, a millisecond apart,
// when something is missing. maxLostAttempts is the limit when a socket was opened and
// disappeared before it was bound: each attempt is as likely to lose as the one before.
const maxAttempts, maxLostAttempts = 5, 100

// stageProgress is how much of a container exists.
type stageProgress struct {
	directoryFilled bool // its directory exists, with everything but the sockets
	boundSockets    int  // how many of its sockets are bound, in their order
}

// stageContainer opens the container's sockets and directories, creates its staging directory
// and binds them there. It reports a socket as lost that disappeared before it was bound. What
// was done before stays, so that the next attempt is as short as possible between opening and
// binding.
func (s *Store) stageContainer(c *Container, done *stageProgress) (lost bool, err error) {
	opened, err := s.openSources(c, done)
	if err != nil {
		return false, err
	}
	defer opened.closeAll()
	unlock, err := s.lockStore()
	if err != nil {
		return false, err
	}
	defer unlock()
	defer func() {
		if err != nil {
			err = fmt.Errorf("stage container %q in state directory %q: %w", c.ID, s.dir, err)
		}
	}()
	if err := s.ensureSharedMount(); err != nil {
		return false, err
	}
	if !done.directoryFilled {
		if err := s.fillDirectory(c); err != nil {
			return false, err
		}
		if s.status.Mode != ModeMount {
			return false, s.makePlaceholders(c)
		}
		if err := s.bindDirs(c, opened); err != nil {
			return false, err
		}
		done.directoryFilled = true
	}
	for ; done.boundSockets < len(c.Sockets); done.boundSockets++ {
		if lost, err := s.bindSocket(c, &c.Sockets[done.boundSockets], opened.sockets[done.boundSockets]); err != nil {
			return lost, err
		}
	}
	s.trackContainer(&record{Owner: s.opts.Owner, Container: *c})
	return false, s.markReady(c)
}

// makePlaceholders creates the files that the runtime mounts sockets on, in ModeDirectory.
func (s *Store) makePlaceholders(c *Container) error {
	for i := range c.Sockets {
		for _, at := range c.Sockets[i].At {
			if err := createPlaceholder(filepath.Join(s.containersDir(), c.ID, at)); err != nil {
				return err
			}
		}
	}
	return nil
}

// fillDirectory creates the container's directory with its directories and files.
func (s *Store) fillDirectory(c *Container) error {
	dir := filepath.Join(s.containersDir(), c.ID)
	fresh, err := makeDir(dir)
	if err != nil {
		return err
	}
	if !fresh && s.status.Mode == ModeMount {
		if err := s.unmountAll(c); err != nil {
			return err
		}
	}
	for _, d := range c.Dirs {
		if err := makeDirs(dir, d.Path); err != nil {
			return err
		}
	}
	for _, f := range c.Files {
		// Nobody reads it before the container exists.
		if err := hostfs.CreateFile(filepath.Join(dir, f.Name), f.Data, viewFile); err != nil {
			return err
		}
	}
	return nil
}

// makeDirs creates a directory below base, with its parents.
func makeDirs(base, rel string) error {
	for elem := range strings.SplitSeq(rel, "/") {
		base = filepath.Join(base, elem)
		if _, err := makeDir(base); err != nil {
			return err
		}
	}
	return nil
}

// makeDir creates a directory that a container sees, with its mode whatever the umask. It
// reports whether the directory was missing.
func makeDir(dir string) (fresh bool, err error) {
	if err := unix.Mkdir(dir, containerDir); err != nil {
		if errors.Is(err, unix.EEXIST) {
			return false, nil
		}
		return false, &os.PathError{Op: "mkdir", Path: dir, Err: err}
	}
	if containerDir&hostfs.Umask() == 0 {
		return true, nil
	}
	return true, os.Chmod(dir, containerDir)
}
