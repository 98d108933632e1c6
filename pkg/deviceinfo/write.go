// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"errors"
	"fmt"
	"os"
	"path"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

const (
	dirMode  = 0o755
	fileMode = 0o644

	// Readers ignore names that start with ".", such as this one and temporary files.
	lockName = ".jackfield.lock"
)

// createDir opens dir, and creates it and its parents if they are missing. Their mode lets
// CNI plugins and agents of other users read the files.
func createDir(host hostfs.Root, dir string) (*os.File, error) {
	f, err := host.MakeDir(dir, dirMode)
	if err != nil {
		return nil, dirError("create", dir, err)
	}
	return f, nil
}

// writeFileAt replaces the file name in the open directory by data, atomically and
// durably.
func writeFileAt(dirfd int, name, file string, data []byte) error {
	if err := hostfs.ReplaceAt(dirfd, name, data, hostfs.Own(fileMode)); err != nil {
		return fileError("write", file, err)
	}
	return nil
}

// removeFileAt removes name from the open directory; a missing file is no error. Of a
// symlink it removes the link.
func removeFileAt(dirfd int, name, file string) error {
	err := unix.Unlinkat(dirfd, name, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err == nil {
		err = hostfs.SyncDir(dirfd)
	}
	if err != nil {
		return fileError("remove", file, err)
	}
	return nil
}

// removeFile is removeFileAt for a directory that may be missing.
func removeFile(host hostfs.Root, dir, name string) error {
	f, err := openDirIfExists(host, dir)
	if f == nil {
		return err
	}
	defer f.Close()
	return removeFileAt(int(f.Fd()), name, path.Join(dir, name))
}

// RemoveTemporary removes the temporary files older than age that killed writers left in
// the host directory dir. Readers ignore these files.
func RemoveTemporary(host hostfs.Root, dir string, age time.Duration) error {
	dir, err := cleanDir(dir, DefaultCNIDir)
	if err != nil {
		return err
	}
	f, names, err := listMatching(host, dir, hostfs.IsTemporary)
	if f == nil {
		return err
	}
	defer f.Close()
	errs := []error{err}
	for _, name := range names {
		var st unix.Stat_t
		if unix.Fstatat(int(f.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && time.Since(time.Unix(st.Mtim.Unix())) > age {
			errs = append(errs, removeFileAt(int(f.Fd()), name, path.Join(dir, name)))
		}
	}
	return errors.Join(errs...)
}

// changeDir creates a directory if it is missing, and runs fn with its descriptor while no other
// writer of this package changes it.
func changeDir(host hostfs.Root, dir string, fn func(dirfd int) error) error {
	f, err := createDir(host, dir)
	if err != nil {
		return err
	}
	defer f.Close()
	fd := int(f.Fd())
	return withLock(fd, dir, lockWait, func() error { return fn(fd) })
}

// lockWait is how long a writer waits for another writer, which holds the lock for one read
// and one write.
const lockWait = 5 * time.Second

// withLock runs fn while no other writer of this package changes the directory. The lock is
// on a file that only its owner can open: a user who can open a file can also lock it, and
// block every writer.
//
// If another writer holds the lock for longer than wait, the error is
// errdefs.ErrUnavailable.
func withLock(dirfd int, dir string, wait time.Duration, fn func() error) error {
	file := path.Join(dir, lockName)
	fd, err := unix.Openat(dirfd, lockName, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fileError("lock", file, err)
	}
	defer unix.Close(fd)
	switch err := hostfs.LockWithin(fd, wait); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return fmt.Errorf("lock device-info file %q: another writer holds the lock for more than %v: %w", file, wait, errdefs.ErrUnavailable)
	case err != nil:
		return fileError("lock", file, err)
	}
	return fn()
}
