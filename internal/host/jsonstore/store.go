// SPDX-License-Identifier: Apache-2.0

// Package jsonstore keeps records as JSON files in a directory, one file each. A record that a crash has cut short, or
// that another program has changed, is an error of this record alone.
package jsonstore

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/name"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// ErrDamaged is a record whose content is invalid. It is also errdefs.ErrInvalidArgument.
var ErrDamaged = errors.New("damaged record")

// maxNames bounds the names of a directory.
const maxNames = 1 << 20

// Store is a directory of records. The caller ensures that other users cannot write it.
type Store[T any] struct {
	Dir     string // path of this process
	MaxSize int64  // of a record, in bytes
	// Check returns the reason why the content of a file is invalid.
	Check func(file string, record *T) error
}

// Read returns the record of a file, or nil if it is missing. It follows no symlink. A file that is not regular, or
// too large, is errdefs.ErrInvalidArgument.
func (s Store[T]) Read(file string) (*T, error) {
	path, err := s.path(file)
	if err != nil {
		return nil, err
	}
	return s.readAt(unix.AT_FDCWD, path, file)
}

// ReadAt is [Store.Read] for a caller that has the directory open.
func (s Store[T]) ReadAt(dirfd int, file string) (*T, error) {
	if err := name.CheckFile(file); err != nil {
		return nil, err
	}
	return s.readAt(dirfd, file, file)
}

// readAt reads a record without following a symlink. A missing record is nil.
func (s Store[T]) readAt(dirfd int, path, file string) (*T, error) {
	fd, err := unix.Openat(dirfd, path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	data, err := hostfs.ReadRegular(fd, s.MaxSize)
	if err != nil {
		return nil, err
	}
	return s.Decode(file, data)
}

// Decode returns the record in the content of a file. The error is [ErrDamaged].
func (s Store[T]) Decode(file string, data []byte) (*T, error) {
	record := new(T)
	if err := json.Unmarshal(data, record); err != nil {
		return nil, damagedError{errors.New(diag.Excerpt(err.Error(), diag.MaxExcerpt))}
	}
	if err := s.Check(file, record); err != nil {
		return nil, damagedError{err}
	}
	return record, nil
}

// Write replaces a record atomically. It does not wait for the disk, like [hostfs.ReplaceFile].
func (s Store[T]) Write(file string, record *T) error {
	path, err := s.path(file)
	if err != nil {
		return err
	}
	data, err := json.Marshal(record)
	if err != nil {
		return err
	}
	return hostfs.WithoutPath(hostfs.ReplaceFile(path, data, 0o600))
}

// Remove removes a record. A missing record is no error.
func (s Store[T]) Remove(file string) error {
	path, err := s.path(file)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return hostfs.WithoutPath(err)
	}
	return nil
}

// Files lists the names in the directory, sorted.
func (s Store[T]) Files() ([]string, error) {
	dir, err := os.Open(s.Dir)
	if err != nil {
		return nil, hostfs.WithoutPath(err)
	}
	defer dir.Close()
	return hostfs.ReadNames(dir, maxNames)
}

// path returns the path of a record. Its name must not lead out of the directory.
func (s Store[T]) path(file string) (string, error) {
	return filepath.Join(s.Dir, file), name.CheckFile(file)
}

// damagedError is the reason why a record is [ErrDamaged].
type damagedError struct{ error }

// Is supports [errors.Is].
func (e damagedError) Is(target error) bool {
	return target == ErrDamaged || target == errdefs.ErrInvalidArgument
}
