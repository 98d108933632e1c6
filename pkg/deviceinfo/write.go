// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

const (
	dirMode  = 0o755
	fileMode = 0o644

	// Names that start with "." are no device-info files to any reader here.
	tmpPrefix = ".jackfield-"
	tmpSuffix = ".tmp"
	lockName  = ".jackfield.lock"
)

// makeDir opens dir, and makes it and its parents where they are missing, with
// mode 0755 whatever the umask: CNI plugins and agents under other users read
// there.
func makeDir(host hostfs.Root, dir string) (*os.File, error) {
	f, err := openDir(host, dir)
	if err == nil || !errors.Is(err, unix.ENOENT) || dir == "/" {
		return f, err
	}
	parent, err := makeDir(host, path.Dir(dir))
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	if err := makeDirAt(int(parent.Fd()), path.Base(dir)); err != nil {
		return nil, fmt.Errorf("make device-info directory %q: %w", dir, err)
	}
	return openDir(host, dir)
}

func makeDirAt(parent int, name string) error {
	err := unix.Mkdirat(parent, name, dirMode)
	if errors.Is(err, unix.EEXIST) {
		return nil // another writer was faster
	}
	if err != nil {
		return err
	}
	fd, err := unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Fchmod(fd, dirMode); err != nil {
		return err
	}
	return syncDir(parent)
}

// writeAt replaces the file name in the open directory by data, atomically and
// durably: a new file, renamed over whatever has the name. A symlink there is
// replaced, not followed.
func writeAt(dirfd int, name, file string, data []byte) error {
	tmp := tmpPrefix + rand.Text() + tmpSuffix
	fd, err := unix.Openat(dirfd, tmp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fileError("write", file, err)
	}
	err = fill(fd, data)
	err = errors.Join(err, unix.Close(fd))
	if err == nil {
		err = unix.Renameat(dirfd, tmp, dirfd, name)
	}
	if err != nil {
		_ = unix.Unlinkat(dirfd, tmp, 0)
		return fileError("write", file, err)
	}
	if err := syncDir(dirfd); err != nil {
		return fileError("write", file, err)
	}
	return nil
}

func fill(fd int, data []byte) error {
	for len(data) > 0 {
		n, err := unix.Write(fd, data)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		data = data[n:]
	}
	// The umask had its say on the mode; readers run under other users.
	if err := unix.Fchmod(fd, fileMode); err != nil {
		return err
	}
	return unix.Fsync(fd)
}

func syncDir(fd int) error {
	err := unix.Fsync(fd)
	if errors.Is(err, unix.EINVAL) { // a file system that cannot
		return nil
	}
	return err
}

// removeAt removes name from the open directory; a missing one is no error. A
// symlink is removed itself.
func removeAt(dirfd int, name, file string) error {
	err := unix.Unlinkat(dirfd, name, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err == nil {
		err = syncDir(dirfd)
	}
	if err != nil {
		return fileError("remove", file, err)
	}
	return nil
}

// removeIn is removeAt for a directory that may be missing.
func removeIn(host hostfs.Root, dir, name string) error {
	f, err := openDir(host, dir)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
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
	f, err := openDir(host, dir)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	fd := int(f.Fd())
	var old []string
	err = scanDir(f, dir, maxScan, func(name string) {
		var st unix.Stat_t
		if strings.HasPrefix(name, tmpPrefix) && strings.HasSuffix(name, tmpSuffix) &&
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
