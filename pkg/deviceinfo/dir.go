// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// maxScan bounds how many names of a directory are looked at in one go.
const maxScan = 1 << 20

// cleanDir is dir, or def when dir is empty, as an absolute clean path.
func cleanDir(dir, def string) (string, error) {
	if dir == "" {
		dir = def
	}
	if err := hostfs.CheckPath(dir); err != nil {
		return "", fmt.Errorf("device-info directory %q: %w", dir, err)
	}
	return path.Clean(dir), nil
}

// openDir opens a directory for listing and for opening files in it. A missing
// one is errdefs.ErrNotFound, and nothing else is.
func openDir(host hostfs.Root, dir string) (*os.File, error) {
	f, err := host.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, dirError("open", dir, err)
	}
	return f, nil
}

// openDirIfThere is openDir, and nil without an error for a missing one.
func openDirIfThere(host hostfs.Root, dir string) (*os.File, error) {
	f, err := host.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, dirError("open", dir, err)
	}
	return f, nil
}

// dirError tells a directory that is missing from what is none.
func dirError(verb, dir string, err error) error {
	if errors.Is(err, unix.ENOTDIR) {
		return fmt.Errorf("%s device-info directory %q: it, or what leads to it, is not a directory: %w", verb, dir, errdefs.ErrInvalidArgument)
	}
	return fmt.Errorf("%s device-info directory %q: %w", verb, dir, err)
}

// scanDir calls visit with every name in the open directory f, in no order. It
// stops with errdefs.ErrResourceExhausted behind limit names.
func scanDir(f *os.File, dir string, limit int, visit func(name string)) error {
	for seen := 0; ; {
		names, err := f.Readdirnames(1024)
		for _, name := range names {
			if seen++; seen > limit {
				return fmt.Errorf("list device-info directory %q: it holds more than %d names; remove the stale ones: %w", dir, limit, errdefs.ErrResourceExhausted)
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

// readAt reads the device-info file name in the open directory. file is its host
// path, for messages. What is there but is no regular file of a sensible size is
// a Diagnostics, at once: nothing is opened that could block or act.
func readAt(dirfd int, name, file string) ([]byte, error) {
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
	defer unix.Close(fd)
	if err := unix.Fstat(fd, &st); err != nil { // it may be another file by now
		return nil, fileError("read", file, err)
	}
	if err := checkRegular(&st, file); err != nil {
		return nil, err
	}
	buf := make([]byte, min(st.Size, MaxSize)+1)
	for n := 0; ; {
		k, err := unix.Read(fd, buf[n:])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, fileError("read", file, err)
		case k == 0:
			return buf[:n], nil
		default:
			n += k
		}
		if n > MaxSize {
			return nil, Diagnostics{tooLarge(file, int64(n))}
		}
		if n == len(buf) {
			buf = append(buf, make([]byte, len(buf)+512)...)
		}
	}
}

func checkRegular(st *unix.Stat_t, file string) error {
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return Diagnostics{{File: file, Found: "a " + hostfs.TypeName(st.Mode), Rule: "a regular file", Section: "4"}}
	}
	if st.Size > MaxSize {
		return Diagnostics{tooLarge(file, st.Size)}
	}
	return nil
}

// fileError gives the errno its sentinel.
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
