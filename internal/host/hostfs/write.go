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

// MakeDir opens a directory. It creates a missing one with mode perm, and missing parents with 0755
// so that other users can read it, regardless of the umask. The creation is synchronized to the
// disk.
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
	case !errors.Is(err, unix.EEXIST): // another process created it first
		return nil, err
	}
	return r.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY)
}

// MkdirAt creates a directory with mode perm, regardless of the umask, and opens it. An existing
// directory is unix.EEXIST.
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

// SyncDir writes the names in an open directory to the disk, if the file system supports it.
func SyncDir(fd int) error {
	if err := unix.Fsync(fd); err != nil && !errors.Is(err, unix.EINVAL) {
		return err
	}
	return nil
}

// Like is the owner and mode of a new file.
type Like struct {
	Mode     uint32 // regardless of the umask
	UID, GID int    // -1 for the process's own
}

// Own returns a Like of the process's own user.
func Own(mode uint32) Like { return Like{Mode: mode, UID: -1, GID: -1} }

const (
	tmpPrefix = ".jackfield-"
	tmpSuffix = ".tmp"
)

// randomNumber is part of temporary file names. A test replaces it.
var randomNumber = rand.Uint64

// IsTemporary reports whether a name belongs to a temporary file of [ReplaceAt], which a killed
// process leaves behind.
func IsTemporary(name string) bool {
	return strings.HasPrefix(name, tmpPrefix) && strings.HasSuffix(name, tmpSuffix)
}

// ReplaceAt writes a file in an open directory so that a reader sees the old or the new content,
// even after a crash. It writes a new file, synchronizes it to the disk and renames it. It replaces
// a symlink of that name instead of following it.
func ReplaceAt(dirfd int, name string, data []byte, like Like) error {
	tmp := tmpPrefix + strconv.FormatUint(randomNumber(), 36) + tmpSuffix
	if err := CreateAt(dirfd, tmp, data, like); err != nil {
		return err
	}
	if err := unix.Renameat(dirfd, tmp, dirfd, name); err != nil {
		_ = unix.Unlinkat(dirfd, tmp, 0)
		return err
	}
	if err := SyncDir(dirfd); err != nil {
		return fmt.Errorf("the file is written, but its directory cannot be synchronized: %w", err)
	}
	return nil
}

// CreateAt writes a new file in an open directory and synchronizes its content to the disk. An
// existing file, or a dangling symlink of another process, is unix.EEXIST.
func CreateAt(dirfd int, name string, data []byte, like Like) error {
	fd, err := unix.Openat(dirfd, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	if err = errors.Join(writeContent(f, data, like), f.Close()); err != nil {
		_ = unix.Unlinkat(dirfd, name, 0)
	}
	return err
}

// Replace writes a file like [ReplaceAt]. It creates missing directories with mode 0755.
func (r Root) Replace(hostPath string, data []byte, like Like) error {
	dir, err := r.MakeDir(path.Dir(hostPath), 0o755)
	if err != nil {
		return err
	}
	defer dir.Close()
	return ReplaceAt(int(dir.Fd()), path.Base(hostPath), data, like)
}

// CreateFile writes a file with mode perm, regardless of the umask. It follows no symlink. file is
// a path of this process.
func CreateFile(file string, data []byte, perm os.FileMode) error {
	// An os.File would need two more system calls and a finalizer.
	fd, err := unix.Open(file, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_NOFOLLOW|unix.O_CLOEXEC, uint32(perm))
	if err != nil {
		return &os.PathError{Op: "open", Path: file, Err: err}
	}
	_, err = descriptor(fd).Write(data)
	if err = errors.Join(err, unix.Fchmod(fd, uint32(perm)), unix.Close(fd)); err != nil {
		return &os.PathError{Op: "write", Path: file, Err: err}
	}
	return nil
}

// unfinishedPrefix and unfinishedSuffix enclose the name of a file that ReplaceFile has not
// finished.
const unfinishedPrefix, unfinishedSuffix = ".", ".new"

// IsUnfinished reports whether a name belongs to a file that [ReplaceFile] has not finished.
func IsUnfinished(name string) bool {
	return strings.HasPrefix(name, unfinishedPrefix) && strings.HasSuffix(name, unfinishedSuffix)
}

// RemoveUnfinished removes the files that killed callers of [ReplaceFile] left in a directory. The
// caller must have excluded all writers. A missing directory is no error. dir is a path of this
// process.
func RemoveUnfinished(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		if IsUnfinished(e.Name()) {
			errs = append(errs, os.Remove(path.Join(dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// ReplaceFile is [CreateFile] with an atomic replacement: a reader sees the old or the new content.
// It does not wait for the disk, so a crash of the machine can truncate the file; see [ReplaceAt].
// Only one caller at a time can write a file.
func ReplaceFile(file string, data []byte, perm os.FileMode) error {
	tmp := path.Join(path.Dir(file), unfinishedPrefix+path.Base(file)+unfinishedSuffix)
	err := CreateFile(tmp, data, perm)
	if err == nil {
		err = os.Rename(tmp, file)
	}
	if err != nil {
		os.Remove(tmp)
	}
	return err
}

// writeContent writes the content of a new file to the disk, with its owner and mode.
func writeContent(f *os.File, data []byte, like Like) error {
	if _, err := f.Write(data); err != nil {
		return err
	}
	if like.UID >= 0 && like.UID != os.Geteuid() || like.GID >= 0 && like.GID != os.Getegid() {
		if err := f.Chown(like.UID, like.GID); err != nil {
			return fmt.Errorf("keep the owner %d:%d: %w", like.UID, like.GID, err)
		}
	}
	if err := unix.Fchmod(int(f.Fd()), like.Mode); err != nil {
		return err
	}
	return f.Sync()
}
