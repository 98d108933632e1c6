// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// Prepare creates everything that c names, or nothing. A second call for the same container
// starts from scratch, and first removes what the container had if c names something else.
func (s *Store) Prepare(c edit.Container) (err error) {
	if err := validateContainer(&c); err != nil {
		return err
	}
	again, err := s.removeChanged(&c)
	if err != nil {
		return s.stagingError(&c, err)
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
	if err := s.locked(func() error { return s.recordContainer(&c) }); err != nil {
		return fmt.Errorf("record container %q in state directory %q: %w", c.ID, s.dir, err)
	}
	if err := s.locked(func() error { return s.fillDirectory(&c, again) }); err != nil {
		return s.stagingError(&c, err)
	}
	for i := range c.SocketDirs {
		if err := s.stageSocketDir(&c, &c.SocketDirs[i]); err != nil {
			return err
		}
	}
	if err := s.holdSockets(c.SandboxID, c.Sockets); err != nil {
		return err
	}
	for i := range c.Sockets {
		if err := s.stageSocket(&c, &c.Sockets[i]); err != nil {
			return err
		}
	}
	return s.locked(func() error { return s.finishStaging(&c) })
}

func (s *Store) stagingError(c *edit.Container, err error) error {
	return fmt.Errorf("stage container %q in state directory %q: %w", c.ID, s.dir, err)
}

// removeChanged removes what the container has if its record names something else than c. again means that
// the record names the same. A hook that runs at two stages knows the bundle only at the second, when the
// container has its directory mounted.
func (s *Store) removeChanged(c *edit.Container) (again bool, err error) {
	data, err := os.ReadFile(s.recordFile(c.SandboxID, c.ID))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	r := decodeRecord(data, s.opts.Owner, c.SandboxID, c.ID) // without a readable record it is empty
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

// fillDirectory creates the container's directory with its directories and files. again means that an
// earlier call did so: its mounts are removed first. The lock is held.
func (s *Store) fillDirectory(c *edit.Container, again bool) error {
	if err := s.ensureSharedMount(); err != nil {
		return err
	}
	if again {
		if err := s.unmountAll(c); err != nil {
			return err
		}
	}
	if err := s.makeDirs(c, nil); err != nil {
		return err
	}
	for _, f := range c.Files {
		// Nobody reads it before the container exists.
		if err := hostfs.CreateFile(filepath.Join(s.containersDir(), c.ID, f.Name), f.Data, viewFile); err != nil {
			return err
		}
	}
	return nil
}

// finishStaging tracks a container whose mounts all exist. The lock is held.
func (s *Store) finishStaging(c *edit.Container) error {
	if s.status.Mode != ModeMount {
		return nil
	}
	s.trackContainer(&record{Owner: s.opts.Owner, Container: *c})
	return s.markReady(c)
}

// makeDirs creates the container's directory and the directories in it, as far as they are missing, and
// mounts the scratch directories that the container does not have yet.
func (s *Store) makeDirs(c *edit.Container, have []edit.Dir) error {
	containers, err := unix.Open(s.containersDir(), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: s.containersDir(), Err: err}
	}
	defer unix.Close(containers)
	dir, err := makeDir(containers, s.containersDir(), c.ID)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	for _, d := range c.Dirs {
		fd, err := makeDir(dir, filepath.Join(s.containersDir(), c.ID), d.Path)
		if err != nil {
			return err
		}
		unix.Close(fd)
		if d.Scratch && s.status.Mode == ModeMount && !slices.Contains(have, d) {
			if err := mountScratch(c, filepath.Join(s.containersDir(), c.ID), d.Path); err != nil {
				return err
			}
		}
	}
	return nil
}

// makeDir opens a directory below an open one, whose path is base. It creates the directory and its parents if they are
// missing, with the mode that a container needs whatever the umask. It follows no symlink.
func makeDir(dirfd int, base, rel string) (int, error) {
	at := dirfd
	for elem := range strings.SplitSeq(rel, "/") {
		next, err := hostfs.MkdirAt(at, elem, containerDir)
		if errors.Is(err, unix.EEXIST) {
			next, err = hostfs.OpenatBeneath(at, elem, unix.O_RDONLY|unix.O_DIRECTORY)
		}
		if at != dirfd {
			unix.Close(at)
		}
		if err != nil {
			return -1, &os.PathError{Op: "mkdir", Path: filepath.Join(base, rel), Err: err}
		}
		at = next
	}
	return at, nil
}
