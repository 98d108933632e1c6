// SPDX-License-Identifier: Apache-2.0

package record

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/host/jsonstore"
	"github.com/jackfield/jackfield/internal/host/trust"
)

// partSuffix ends the name of an unfinished record.
const partSuffix = ".new"

// Store is the directory of the records.
type Store struct {
	dir string
	f   *os.File
}

// Open opens the directory, and creates it if it is missing. The error is a *trust.Error if a user
// other than root can write or replace the directory.
func Open(host hostfs.Root, dir string) (*Store, error) {
	f, err := trust.MakeOwnDir(host, dir, 0o700)
	if err != nil {
		return nil, fmt.Errorf("open stateDir: %w", err)
	}
	return &Store{dir, f}, nil
}

// Find opens the directory. It returns nil if the directory is missing.
func Find(host hostfs.Root, dir string) (*Store, error) {
	f, err := trust.OpenOwnDir(host, dir)
	switch {
	case errdefs.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("open stateDir: %w", err)
	}
	return &Store{dir, f}, nil
}

// Close closes the directory.
func (s *Store) Close() error { return s.f.Close() }

func (s *Store) fd() int { return int(s.f.Fd()) }

// records returns the records of the open directory.
func (s *Store) records() jsonstore.Store[Record] {
	return jsonstore.Store[Record]{Dir: hostfs.DescriptorPath(s.fd()), MaxSize: 256 << 10, Check: check}
}

func (s *Store) wrap(verb, name string, err error) error {
	return fmt.Errorf("%s record %q: %w", verb, path.Join(s.dir, name), err)
}

// Keys lists the attachments with a record, sorted.
func (s *Store) Keys() ([]Key, error) { return s.list(parseFileName) }

// UnfinishedKeys lists the attachments whose record is unfinished, sorted.
func (s *Store) UnfinishedKeys() ([]Key, error) {
	return s.list(func(name string) (Key, bool) {
		key, ok := parseFileName(strings.TrimSuffix(strings.TrimPrefix(name, "."), partSuffix))
		return key, ok && partName(key) == name
	})
}

// list returns the keys of the files whose names parse, sorted by file name. Other files are ignored.
func (s *Store) list(parseName func(string) (Key, bool)) ([]Key, error) {
	names, err := s.records().Files()
	if err != nil {
		return nil, s.wrap("list", "", err)
	}
	var keys []Key
	for _, name := range names {
		if key, ok := parseName(name); ok {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b Key) int { return cmp.Compare(a.FileName(), b.FileName()) })
	return keys, nil
}

// Create writes a new record. A second record for the same interface of the container, in any
// network, is errdefs.ErrAlreadyExists. A key that is too long for a file name is
// errdefs.ErrInvalidArgument.
func (s *Store) Create(r *Record) error {
	keys, err := s.Keys()
	if err != nil {
		return err
	}
	for _, k := range keys {
		if k.ContainerID == r.ContainerID && k.Interface == r.Interface {
			return fmt.Errorf("container %q has interface %q in network %q; run DEL first: %w", k.ContainerID,
				k.Interface, k.Network, errdefs.ErrAlreadyExists)
		}
	}
	part := partName(r.Key)
	if over := len(part) - 255; over > 0 {
		names := len(r.Network) + len(r.ContainerID)
		return fmt.Errorf("the names of network and container together are too long: %d bytes, at most %d: %w", names,
			names-over, errdefs.ErrInvalidArgument)
	}
	err = s.publish("write", r, func() error {
		// Unlike a rename, a link does not replace the record of a concurrent ADD.
		return errors.Join(unix.Linkat(s.fd(), part, s.fd(), r.FileName(), 0), unix.Unlinkat(s.fd(), part, 0))
	})
	if errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("another ADD of the same interface is running or was killed; run DEL first: %w",
			errdefs.ErrAlreadyExists)
	}
	return err
}

// Update replaces an attachment's existing record atomically.
func (s *Store) Update(r *Record) error {
	return s.publish("update", r, func() error { return unix.Renameat(s.fd(), partName(r.Key), s.fd(), r.FileName()) })
}

// publish writes a record under its unfinished name, which exists already only during a concurrent
// ADD. rename then moves it to its final name.
func (s *Store) publish(verb string, r *Record, rename func() error) error {
	data, err := json.Marshal(r)
	if err == nil {
		err = hostfs.CreateAt(s.fd(), partName(r.Key), data, hostfs.Own(0o600))
	}
	if err == nil {
		err = rename()
	}
	if err == nil {
		err = hostfs.SyncDir(s.fd())
	}
	if err != nil {
		return s.wrap(verb, r.FileName(), err)
	}
	return nil
}

// partName returns the file name of an unfinished record.
func partName(k Key) string { return "." + k.FileName() + partSuffix }

// Read returns the record of an attachment, or nil. An unreadable record, after a disk fault or a change by
// another program, is errdefs.ErrInvalidArgument.
func (s *Store) Read(k Key) (*Record, error) {
	r, err := s.records().Read(k.FileName())
	if err != nil {
		return nil, s.wrap("read", k.FileName(), err)
	}
	return r, nil
}

// Remove removes a record, and its unfinished file. A missing record is no error.
func (s *Store) Remove(k Key) error {
	for _, name := range []string{partName(k), k.FileName()} {
		if err := unix.Unlinkat(s.fd(), name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
			return s.wrap("remove", name, err)
		}
	}
	return nil
}

// Lock takes the lock of the directory, waiting for at most the given time. The lock ends with the
// process at the latest. The error for a lock that another process holds is errdefs.ErrConflict.
func (s *Store) Lock(wait time.Duration) (unlock func(), err error) {
	fd, err := unix.Openat(s.fd(), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, s.wrap("lock", "", err)
	}
	if err = hostfs.LockWithin(fd, wait); err == nil {
		return func() { unix.Close(fd) }, nil
	}
	unix.Close(fd)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = errdefs.ErrConflict.WithMessage("another process records a port")
	}
	return nil, s.wrap("lock", "", err)
}

// CountPorts returns the number of ports of the container's other attachments. An unreadable record
// counts as a port.
func (s *Store) CountPorts(k Key) (int, error) {
	keys, err := s.Keys()
	if err != nil {
		return 0, err
	}
	n := 0
	for _, other := range keys {
		if other.ContainerID != k.ContainerID || other == k {
			continue
		}
		if r, err := s.Read(other); err != nil || r != nil && r.Port != nil {
			n++
		}
	}
	return n, nil
}

// LockRecord takes the lock of an attachment's record, waiting for at most the given time. A
// process that creates or removes the attachment's port holds it, so that a port is not re-created
// during its removal. The lock is on the record's file and ends with the process at the latest.
// Without a record, unlock is nil. The error for a lock that another process holds is
// errdefs.ErrConflict.
func (s *Store) LockRecord(k Key, wait time.Duration) (unlock func(), err error) {
	fd, err := hostfs.OpenatBeneath(s.fd(), k.FileName(), unix.O_RDONLY|unix.O_NOCTTY)
	if errdefs.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, s.wrap("lock", k.FileName(), err)
	}
	var st unix.Stat_t
	if err = hostfs.LockWithin(fd, wait); err == nil {
		err = unix.Fstat(fd, &st)
	}
	if err == nil && st.Nlink > 0 {
		return func() { unix.Close(fd) }, nil
	}
	unix.Close(fd)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, s.wrap("lock", k.FileName(), errdefs.ErrConflict.WithMessage("another process changes "+
			"the attachment"))
	case err != nil:
		return nil, s.wrap("lock", k.FileName(), err)
	}
	return nil, nil // removed or replaced by the previous holder of the lock
}
