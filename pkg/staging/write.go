// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

func (s *Store) mkdirs(base, rel string) error {
	for elem := range strings.SplitSeq(rel, "/") {
		base = filepath.Join(base, elem)
		if _, err := s.mkdir(base); err != nil {
			return err
		}
	}
	return nil
}

// mkdir makes a directory that a container sees, whatever the umask, and says
// whether it was missing.
func (s *Store) mkdir(dir string) (fresh bool, err error) {
	if err := unix.Mkdir(dir, containerDir); err != nil {
		if errors.Is(err, unix.EEXIST) {
			return false, nil
		}
		return false, &os.PathError{Op: "mkdir", Path: dir, Err: err}
	}
	if s.masked {
		return true, os.Chmod(dir, containerDir)
	}
	return true, nil
}

// write writes a file that is not there yet.
func (s *Store) write(dir, name string, data []byte) error {
	file := filepath.Join(dir, name)
	if err := create(file, data, viewFile); err != nil {
		return err
	}
	if s.masked {
		return os.Chmod(file, viewFile)
	}
	return nil
}

// create is os.WriteFile without the look at whether the file can be polled, and
// without following a symlink.
func create(file string, data []byte, mode uint32) error {
	fd, err := unix.Open(file, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
	if err != nil {
		return &os.PathError{Op: "open", Path: file, Err: err}
	}
	for len(data) > 0 && err == nil {
		var n int
		if n, err = unix.Write(fd, data); n > 0 {
			data = data[n:]
		}
		if errors.Is(err, unix.EINTR) {
			err = nil
		}
	}
	if err := errors.Join(err, unix.Close(fd)); err != nil {
		return &os.PathError{Op: "write", Path: file, Err: err}
	}
	return nil
}

// replace writes a file so that a reader sees the old or the new content.
func (s *Store) replace(dir, name string, data []byte) error {
	tmp := "." + name + ".new"
	err := s.write(dir, tmp, data)
	if err == nil {
		err = os.Rename(filepath.Join(dir, tmp), filepath.Join(dir, name))
	}
	if err != nil {
		os.Remove(filepath.Join(dir, tmp))
	}
	return err
}
