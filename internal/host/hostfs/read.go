// SPDX-License-Identifier: Apache-2.0

package hostfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// ReadFile reads a regular file of at most max bytes. A directory, FIFO, socket, device or larger
// file is an immediate errdefs.ErrInvalidArgument.
func (r Root) ReadFile(hostPath string, max int64) ([]byte, error) {
	return r.ReadFileIf(hostPath, max, func(*unix.Stat_t) error { return nil })
}

// ReadFileIf is [Root.ReadFile] with a check of the open file's stat, so that the checked file is
// the file that is read. It returns the error of check unchanged.
func (r Root) ReadFileIf(hostPath string, max int64, check func(*unix.Stat_t) error) ([]byte, error) {
	fd, err := r.OpenFD(hostPath, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, &os.PathError{Op: "read", Path: hostPath, Err: err}
	}
	if err := check(&st); err != nil {
		return nil, err
	}
	b, err := ReadRegular(fd, max)
	if err != nil {
		return nil, &os.PathError{Op: "read", Path: hostPath, Err: WithoutPath(err)}
	}
	return b, nil
}

// ReadFileAt reads a file below an open directory with the checks of [Root.ReadFile]. It follows no symlink out of the
// directory.
func ReadFileAt(dirfd int, rel string, max int64) ([]byte, error) {
	fd, err := OpenatBeneath(dirfd, rel, unix.O_RDONLY|unix.O_NOCTTY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return ReadRegular(fd, max)
}

// ReadBeneath is [ReadFileAt] for a path below dir.
func (r Root) ReadBeneath(dir, rel string, max int64) ([]byte, error) {
	f, err := r.OpenBeneath(dir, rel, unix.O_RDONLY|unix.O_NOCTTY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadRegular(int(f.Fd()), max)
}

// ReadRegular reads an open file completely, with the checks of [Root.ReadFile].
func ReadRegular(fd int, max int64) ([]byte, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, errdefs.ErrInvalidArgument.WithMessage(fmt.Sprintf("it is a %s, not a regular file",
			TypeName(st.Mode)))
	}
	if st.Size > max {
		return nil, errdefs.ErrInvalidArgument.WithMessage(fmt.Sprintf("it has %d bytes, more than the %d allowed",
			st.Size, max))
	}
	// sysfs and procfs report sizes that differ from the content, and a file can grow after the
	// check.
	return readAtMost(descriptor(fd), max, st.Size)
}

// descriptor reads or writes a regular file. An os.File would need two more system calls, to register with
// the poller in vain.
type descriptor int

// Read implements io.Reader. After EINTR it returns no bytes and no error, so the caller reads again.
func (fd descriptor) Read(p []byte) (int, error) {
	n, err := unix.Read(int(fd), p)
	switch {
	case errors.Is(err, unix.EINTR):
		return 0, nil
	case err != nil:
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// Write implements io.Writer, also for a descriptor that accepts a part of p.
func (fd descriptor) Write(p []byte) (written int, err error) {
	for written < len(p) {
		n, err := unix.Write(int(fd), p[written:])
		if err != nil && !errors.Is(err, unix.EINTR) {
			return written, err
		}
		written += max(n, 0)
	}
	return written, nil
}

// ReadAtMost reads a stream to its end. More than max bytes are errdefs.ErrInvalidArgument.
func ReadAtMost(r io.Reader, max int64) ([]byte, error) { return readAtMost(r, max, 0) }

// readAtMost is [ReadAtMost] for a stream with an expected size.
func readAtMost(r io.Reader, max, size int64) ([]byte, error) {
	var data bytes.Buffer
	data.Grow(int(size) + bytes.MinRead)              // room to detect the end
	_, err := data.ReadFrom(io.LimitReader(r, max+1)) // one more byte, to detect a larger file
	if err != nil {
		return nil, err
	}
	if int64(data.Len()) > max {
		return nil, errdefs.ErrInvalidArgument.WithMessage(fmt.Sprintf("it has more than the %d bytes allowed", max))
	}
	return data.Bytes(), nil
}

// ReadDir lists the names in a directory, sorted. More than max names are
// errdefs.ErrResourceExhausted.
func (r Root) ReadDir(hostPath string, max int) ([]string, error) {
	dir, err := r.Open(hostPath, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := ReadNames(dir, max)
	switch {
	case errdefs.IsResourceExhausted(err):
		return nil, errdefs.ErrResourceExhausted.WithMessage(fmt.Sprintf("list %q: %v", hostPath, err))
	case err != nil:
		return nil, &os.PathError{Op: "list", Path: hostPath, Err: sentinel(WithoutPath(err))}
	}
	return names, nil
}

// ReadNames lists the names in an open directory under the rules of [Root.ReadDir].
func ReadNames(dir *os.File, max int) ([]string, error) {
	names, err := dir.Readdirnames(max + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(names) > max {
		return nil, errdefs.ErrResourceExhausted.WithMessage(fmt.Sprintf("more than %d entries", max))
	}
	slices.Sort(names)
	return names, nil
}
