// SPDX-License-Identifier: Apache-2.0

package hostfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// ReadFile reads a regular file of at most max bytes. A directory, FIFO, socket, device or larger
// file is errdefs.ErrInvalidArgument, at once.
func (r Root) ReadFile(hostPath string, max int64) ([]byte, error) {
	return r.ReadFileIf(hostPath, max, func(*unix.Stat_t) error { return nil })
}

// ReadFileIf is [Root.ReadFile] with a check of the open file's stat, so that what was checked is
// what is read. It returns the error of check unchanged.
func (r Root) ReadFileIf(hostPath string, max int64, check func(*unix.Stat_t) error) ([]byte, error) {
	// Not an os.File: the first one in a process starts the Go runtime's poller, which a
	// short-lived process does not need.
	fd, err := r.open(hostPath, unix.O_RDONLY, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: hostPath, Err: sentinel(err)}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, &os.PathError{Op: "read", Path: hostPath, Err: err}
	}
	if err := check(&st); err != nil {
		return nil, err
	}
	b, err := readRegular(fd, &st, max)
	if err != nil {
		return nil, &os.PathError{Op: "read", Path: hostPath, Err: err}
	}
	return b, nil
}

// ReadRegular reads all of f under the rules of [Root.ReadFile].
func ReadRegular(f *os.File, max int64) ([]byte, error) {
	defer runtime.KeepAlive(f)
	fd := int(f.Fd())
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	return readRegular(fd, &st, max)
}

func readRegular(fd int, st *unix.Stat_t, max int64) ([]byte, error) {
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, errdefs.ErrInvalidArgument.WithMessage(fmt.Sprintf("it is a %s, not a regular file", TypeName(st.Mode)))
	}
	if st.Size > max {
		return nil, errdefs.ErrInvalidArgument.WithMessage(fmt.Sprintf("it has %d bytes, more than the %d allowed", st.Size, max))
	}
	// sysfs and procfs report sizes that are not those of the content. A file can also grow after
	// the check.
	return readAll(descriptorReader(fd), st.Size, max)
}

// ReadAtMost reads a stream to its end. More than max bytes are
// errdefs.ErrInvalidArgument.
func ReadAtMost(r io.Reader, max int64) ([]byte, error) { return readAll(r, 0, max) }

// readAll reads to the end. It reads one byte more than allowed, to notice a larger file.
func readAll(r io.Reader, expected, max int64) ([]byte, error) {
	var b bytes.Buffer
	b.Grow(int(min(max, expected)) + bytes.MinRead)
	if _, err := b.ReadFrom(io.LimitReader(r, max+1)); err != nil {
		return nil, err
	}
	if int64(b.Len()) > max {
		return nil, errdefs.ErrInvalidArgument.WithMessage(fmt.Sprintf("it has more than the %d bytes allowed", max))
	}
	return b.Bytes(), nil
}

// descriptorReader reads from a descriptor of a regular file.
type descriptorReader int

func (fd descriptorReader) Read(b []byte) (int, error) {
	for {
		n, err := unix.Read(int(fd), b)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		}
		return n, nil
	}
}

// ReadDir lists the names in a directory, sorted, at most max of them; more is
// errdefs.ErrResourceExhausted.
func (r Root) ReadDir(hostPath string, max int) ([]string, error) {
	fd, err := r.open(hostPath, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: hostPath, Err: sentinel(err)}
	}
	defer unix.Close(fd)
	names := []string{}
	buf := make([]byte, 8<<10)
	for {
		n, err := unix.ReadDirent(fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, &os.PathError{Op: "list", Path: hostPath, Err: sentinel(err)}
		}
		if n <= 0 {
			break
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names)
		if len(names) > max {
			return nil, errdefs.ErrResourceExhausted.WithMessage(fmt.Sprintf("list %q: more than %d entries", hostPath, max))
		}
	}
	slices.Sort(names)
	return names, nil
}
