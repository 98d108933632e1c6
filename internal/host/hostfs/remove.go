// SPDX-License-Identifier: Apache-2.0

package hostfs

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path"
	"strconv"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Remove removes a file, or a symlink itself. A missing file is no error.
func (r Root) Remove(hostPath string) error {
	dir, err := r.Open(path.Dir(hostPath), unix.O_PATH|unix.O_DIRECTORY)
	if err == nil {
		defer dir.Close()
		err = unix.Unlinkat(int(dir.Fd()), path.Base(hostPath), 0)
	}
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// RemoveTreeAt removes a file, or a directory with all its contents, from an open directory. A
// missing name is no error. It never follows a symlink and never enters a mount: a mount in the
// tree stays, and is an error.
//
// A container can nest directories without limit, so RemoveTreeAt cannot hold a descriptor for each
// level. Instead it moves the subdirectories of a non-empty directory up into the top directory and
// then removes the directory. At most three directories are open at a time, and memory use does not
// depend on the tree.
func RemoveTreeAt(dirfd int, name string) error {
	return new(treeRemoval).removeEntry(dirfd, name)
}

// maxRemoved bounds the entries that one call removes. Otherwise a process that keeps creating
// files in the tree could keep it busy forever.
const maxRemoved = 1 << 24

// treeRemoval is one removal of a tree.
type treeRemoval struct {
	top     *os.File // the tree's directory, once opened
	removed int
}

// sweepDir goes once through the entries of the top directory, or of a directory directly below it,
// and removes them or moves them up. more reports whether the directory needs another sweep. The
// error concerns entries that cannot be removed.
func (r *treeRemoval) sweepDir(dir *os.File) (more bool, err error) {
	if _, err := dir.Seek(0, io.SeekStart); err != nil {
		return false, err
	}
	progress := false
	var failed error
	for {
		names, err := dir.Readdirnames(1024)
		for _, name := range names {
			if r.removed++; r.removed > maxRemoved {
				return false, errdefs.ErrResourceExhausted.WithMessage(fmt.Sprintf("more than %d entries", maxRemoved))
			}
			err := r.removeEntry(int(dir.Fd()), name)
			if err == nil {
				progress = true
			} else if failed == nil {
				failed = err
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return false, err
		}
	}
	if progress {
		return true, nil // entries may have appeared or been skipped during the removal of others
	}
	return false, failed
}

// removeEntry removes the tree itself, an entry of its top directory, or an entry of a directory
// directly below. On that last level, a non-empty directory is moved up.
func (r *treeRemoval) removeEntry(dirfd int, name string) error {
	err := unix.Unlinkat(dirfd, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if !errors.Is(err, unix.EISDIR) {
		return &os.PathError{Op: "unlink", Path: name, Err: err}
	}
	if r.top != nil {
		err = removeEmptyDir(dirfd, name)
		if !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EEXIST) {
			return err
		}
		if dirfd != int(r.top.Fd()) {
			// The new name is unpredictable, so it is unused.
			err := unix.Renameat(dirfd, name, int(r.top.Fd()), strconv.FormatUint(rand.Uint64(), 36))
			if err != nil && !errors.Is(err, unix.ENOENT) {
				return &os.PathError{Op: "rename", Path: name, Err: err}
			}
			return nil
		}
	}
	dir, err := openForRemoval(dirfd, name)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	what := strconv.Quote(name)
	if r.top == nil {
		r.top, what = dir, "remove "+what
	}
	for more := true; more; {
		if more, err = r.sweepDir(dir); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return removeEmptyDir(dirfd, name)
}

// removeEmptyDir removes a directory. A missing directory is no error.
func removeEmptyDir(dirfd int, name string) error {
	if err := unix.Unlinkat(dirfd, name, unix.AT_REMOVEDIR); err != nil && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "rmdir", Path: name, Err: err}
	}
	return nil
}

// openForRemoval opens a directory to remove its entries. A symlink or a mount point is an error.
func openForRemoval(dirfd int, name string) (*os.File, error) {
	fd, err := Openat2(dirfd, name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC | unix.O_NONBLOCK,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	})
	if errors.Is(err, unix.EXDEV) {
		err = fmt.Errorf("a file system is mounted there: %w", unix.EBUSY)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}
