// SPDX-License-Identifier: Apache-2.0

package hostfs

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// MakeDir opens a directory, and makes it with mode perm, and its parents with 0755,
// where they are missing: whatever the umask, for readers under other users. That it
// was made is on the disk.
func (r Root) MakeDir(dir string, perm uint32) (*os.File, error) {
	f, err := r.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err == nil || !errors.Is(err, unix.ENOENT) || dir == "/" {
		return f, err
	}
	parent, err := r.MakeDir(path.Dir(dir), 0o755)
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	fd, err := MkdirAt(int(parent.Fd()), path.Base(dir), perm)
	switch {
	case err == nil:
		if err := errors.Join(unix.Close(fd), SyncDir(int(parent.Fd()))); err != nil {
			return nil, err
		}
	case !errors.Is(err, unix.EEXIST): // else somebody was faster
		return nil, err
	}
	return r.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY)
}

// MkdirAt makes a directory with mode perm, whatever the umask, and opens it. One that
// is there already is unix.EEXIST.
func MkdirAt(dirfd int, name string, perm uint32) (int, error) {
	if err := unix.Mkdirat(dirfd, name, perm); err != nil {
		return -1, err
	}
	fd, err := OpenatBeneath(dirfd, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return -1, err
	}
	if err := unix.Fchmod(fd, perm); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// SyncDir has the names in an open directory written to the disk, where the file
// system can.
func SyncDir(fd int) error {
	if err := unix.Fsync(fd); err != nil && !errors.Is(err, unix.EINVAL) {
		return err
	}
	return nil
}

// Like is whose a file is that is written, and who may use it.
type Like struct {
	Mode     uint32 // whatever the umask
	UID, GID int    // -1 is the process's own
}

// Own is a file of the process's own user.
func Own(mode uint32) Like { return Like{Mode: mode, UID: -1, GID: -1} }

const (
	tmpPrefix = ".jackfield-"
	tmpSuffix = ".tmp"
)

// randomNumber makes the names of temporary files; a test replaces it.
var randomNumber = rand.Uint64

// IsTemporary reports whether a name is one that [ReplaceAt] uses meanwhile: a process
// that is killed leaves it behind.
func IsTemporary(name string) bool {
	return strings.HasPrefix(name, tmpPrefix) && strings.HasSuffix(name, tmpSuffix)
}

// ReplaceAt writes the file of a name in an open directory so that a reader sees the
// old or the new content, also after a crash: a new file, on the disk, is renamed over
// what has the name. A symlink there is replaced, not followed.
func ReplaceAt(dirfd int, name string, data []byte, like Like) (err error) {
	// O_EXCL refuses what is there already, whoever foresaw the name.
	tmp := tmpPrefix + strconv.FormatUint(randomNumber(), 36) + tmpSuffix
	fd, err := unix.Openat(dirfd, tmp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(fill(fd, data, like), unix.Close(fd))
	if err == nil {
		err = unix.Renameat(dirfd, tmp, dirfd, name)
	}
	if err != nil {
		// The error tells what happened.
		_ = unix.Unlinkat(dirfd, tmp, 0)
		return err
	}
	if err := SyncDir(dirfd); err != nil {
		return fmt.Errorf("the file is written, and its directory cannot be synchronized: %w", err)
	}
	return nil
}

func fill(fd int, data []byte, like Like) error {
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
	if like.UID >= 0 && like.UID != os.Geteuid() || like.GID >= 0 && like.GID != os.Getegid() {
		if err := unix.Fchown(fd, like.UID, like.GID); err != nil {
			return fmt.Errorf("keep the owner %d:%d: %w", like.UID, like.GID, err)
		}
	}
	if err := unix.Fchmod(fd, like.Mode); err != nil {
		return err
	}
	return unix.Fsync(fd)
}
