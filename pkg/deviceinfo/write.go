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

	// Names that start with "." are no device-info files to any reader here, temporary
	// files among them.
	lockName = ".jackfield.lock"
)

// makeDir opens dir, and makes it and its parents where they are missing: CNI plugins
// and agents under other users read there.
func makeDir(host hostfs.Root, dir string) (*os.File, error) {
	f, err := host.MakeDir(dir, dirMode)
	if err != nil {
		return nil, dirError("make", dir, err)
	}
	return f, nil
}

// writeAt replaces the file name in the open directory by data, atomically and
// durably.
func writeAt(dirfd int, name, file string, data []byte) error {
	if err := hostfs.ReplaceAt(dirfd, name, data, hostfs.Own(fileMode)); err != nil {
		return fileError("write", file, err)
	}
	return nil
}

// removeAt removes name from the open directory; a missing one is no error. A
// symlink is removed itself.
func removeAt(dirfd int, name, file string) error {
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

// removeIn is removeAt for a directory that may be missing.
func removeIn(host hostfs.Root, dir, name string) error {
	f, err := openDirIfThere(host, dir)
	if f == nil {
		return err
	}
	defer f.Close()
	return removeAt(int(f.Fd()), name, path.Join(dir, name))
}

// RemoveTemporary removes what writers that were killed left in the host
// directory dir: temporary files older than age. Readers ignore them anyway.
func RemoveTemporary(host hostfs.Root, dir string, age time.Duration) error {
	dir, err := cleanDir(dir, DefaultCNIDir)
	if err != nil {
		return err
	}
	f, err := openDirIfThere(host, dir)
	if f == nil {
		return err
	}
	defer f.Close()
	fd := int(f.Fd())
	var old []string
	err = scanDir(f, dir, maxScan, func(name string) {
		var st unix.Stat_t
		if hostfs.IsTemporary(name) &&
			unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && time.Since(time.Unix(st.Mtim.Unix())) > age {
			old = append(old, name)
		}
	})
	errs := []error{err}
	for _, name := range old {
		errs = append(errs, removeAt(fd, name, path.Join(dir, name)))
	}
	return errors.Join(errs...)
}

// lockWait is how long a writer waits for another one. They hold the lock for
// the time of one read and one write.
const lockWait = 5 * time.Second

// locked runs fn while no other writer changes the directory by way of this
// package. The lock lies on a file of its own that only its owner can open:
// whoever may open a file may also lock it, and block everybody else.
//
// wait is how long another writer is waited for; behind it the error is
// errdefs.ErrUnavailable.
func locked(dirfd int, dir string, wait time.Duration, fn func() error) error {
	file := path.Join(dir, lockName)
	fd, err := unix.Openat(dirfd, lockName, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fileError("lock", file, err)
	}
	defer unix.Close(fd)
	deadline := time.Now().Add(wait)
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return fn()
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return fileError("lock", file, err)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("lock device-info file %q: another writer holds the lock for more than %v: %w", file, wait, errdefs.ErrUnavailable)
		}
		time.Sleep(pause)
	}
}
