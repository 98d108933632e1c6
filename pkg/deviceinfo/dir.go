// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// maxListed bounds the names in a directory.
const maxListed = 1 << 20

// cleanDir returns dir, or def if dir is empty, as an absolute clean path.
func cleanDir(dir, def string) (string, error) {
	if dir == "" {
		dir = def
	}
	if err := hostfs.CheckPath(dir); err != nil {
		return "", fmt.Errorf("device-info directory %q: %w", dir, err)
	}
	return path.Clean(dir), nil
}

// openDir opens a directory for listing and for opening files in it. Only a missing
// directory is errdefs.ErrNotFound.
func openDir(host hostfs.Root, dir string) (*os.File, error) {
	f, err := host.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, dirError("open", dir, err)
	}
	return f, nil
}

// openDirIfExists is openDir, but returns nil without an error for a missing directory.
func openDirIfExists(host hostfs.Root, dir string) (*os.File, error) {
	f, err := openDir(host, dir)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	return f, err
}

// listMatching opens a directory and returns its names that match, sorted. f is nil for a missing directory. Names that
// were found before an error are returned, too.
func listMatching(host hostfs.Root, dir string, match func(name string) bool) (f *os.File, names []string, err error) {
	f, err = openDirIfExists(host, dir)
	if f == nil {
		return nil, nil, err
	}
	err = visitNames(f, dir, maxListed, func(name string) {
		if match(name) {
			names = append(names, name)
		}
	})
	slices.Sort(names)
	return f, names, err
}

// dirError describes an error of a directory. A path that is not a directory is
// errdefs.ErrInvalidArgument.
func dirError(verb, dir string, err error) error {
	if errors.Is(err, unix.ENOTDIR) {
		return fmt.Errorf("%s device-info directory %q: it, or a parent of it, is not a directory: %w", verb, dir, errdefs.ErrInvalidArgument)
	}
	return fmt.Errorf("%s device-info directory %q: %w", verb, dir, err)
}

// visitNames calls visit with every name in the open directory f, unsorted. After limit
// names it stops with errdefs.ErrResourceExhausted.
func visitNames(f *os.File, dir string, limit int, visit func(name string)) error {
	for seen := 0; ; {
		names, err := f.Readdirnames(1024)
		for _, name := range names {
			if seen++; seen > limit {
				return fmt.Errorf("list device-info directory %q: it holds more than %d names; remove the stale files: %w", dir, limit, errdefs.ErrResourceExhausted)
			}
			visit(name)
		}
		if errors.Is(err, io.EOF) || err == nil && len(names) == 0 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list device-info directory %q: %w", dir, err)
		}
	}
}

// readFileAt reads the device-info file name in the open directory. file is its host path,
// for messages. Only regular files are opened, because opening a FIFO or a device can block
// or have an effect; another type, and a file that is too large, is a Diagnostics.
func readFileAt(dirfd int, name, file string) ([]byte, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, fileError("read", file, err)
	}
	if err := checkRegular(&st, file); err != nil {
		return nil, err
	}
	fd, err := hostfs.OpenatBeneath(dirfd, name, unix.O_RDONLY|unix.O_NOCTTY)
	if err != nil {
		return nil, fileError("read", file, err)
	}
	f := os.NewFile(uintptr(fd), file)
	defer f.Close()
	if err := unix.Fstat(fd, &st); err != nil { // the name may lead to another file by now
		return nil, fileError("read", file, err)
	}
	if err := checkRegular(&st, file); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxSize+1)) // a file can have more content than its size
	switch {
	case err != nil:
		return nil, fileError("read", file, err)
	case len(data) > MaxSize:
		return nil, tooLarge(file, int64(len(data)), MaxSize)
	}
	return data, nil
}

func checkRegular(st *unix.Stat_t, file string) error {
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return Diagnostics{{File: file, Found: "a " + hostfs.TypeName(st.Mode), Rule: "must be a regular file", Section: inSection("4")}}
	}
	if st.Size > MaxSize {
		return tooLarge(file, st.Size, MaxSize)
	}
	return nil
}

// fileError adds the sentinel of containerd/errdefs to an errno.
func fileError(verb, file string, err error) error {
	sentinel := error(nil)
	switch {
	case errors.Is(err, unix.ENOENT):
		sentinel = errdefs.ErrNotFound
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.EROFS):
		sentinel = errdefs.ErrPermissionDenied
	case errors.Is(err, unix.EISDIR), errors.Is(err, unix.ENOTDIR):
		sentinel = errdefs.ErrFailedPrecondition
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		sentinel = errdefs.ErrResourceExhausted
	}
	if sentinel == nil {
		return fmt.Errorf("%s device-info file %q: %w", verb, file, err)
	}
	return fmt.Errorf("%s device-info file %q: %w: %w", verb, file, err, sentinel)
}
