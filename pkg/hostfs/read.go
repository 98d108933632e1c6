// SPDX-License-Identifier: Apache-2.0

package hostfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sort"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// ReadFile reads a regular file of at most max bytes. Anything else (a
// directory, FIFO, socket, device, or a larger file) is
// errdefs.ErrInvalidArgument, at once.
func (r Root) ReadFile(hostPath string, max int64) ([]byte, error) {
	return r.ReadFileIf(hostPath, max, func(*unix.Stat_t) error { return nil })
}

// ReadFileIf is [Root.ReadFile] for a file that passes a check, whose error it returns
// as it is. The open file is looked at, so that what was checked is what is read.
func (r Root) ReadFileIf(hostPath string, max int64, check func(*unix.Stat_t) error) ([]byte, error) {
	// No os.File: the first one in a process readies the runtime's poller, which a
	// short-lived process has no use for.
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
		return nil, fmt.Errorf("it is a %s, not a regular file: %w", TypeName(st.Mode), errdefs.ErrInvalidArgument)
	}
	if st.Size > max {
		return nil, fmt.Errorf("it has %d bytes, more than the %d allowed: %w", st.Size, max, errdefs.ErrInvalidArgument)
	}
	// sysfs and procfs report sizes that are not those of the content; a file may
	// also grow after the look at it.
	return readAll(func(b []byte) (int, error) { return unix.Read(fd, b) }, max0(st.Size), max)
}

// ReadAtMost reads a stream to its end. More than max bytes are
// errdefs.ErrInvalidArgument.
func ReadAtMost(r io.Reader, max int64) ([]byte, error) {
	var end error // came with the last bytes
	read := func(b []byte) (n int, err error) {
		for err = end; n == 0 && err == nil; {
			n, err = r.Read(b)
		}
		if end = err; n > 0 || errors.Is(err, io.EOF) {
			return n, nil
		}
		return 0, err
	}
	// Room for most, so that the buffer does not grow over and over.
	return readAll(read, 64<<10, max)
}

// readAll reads to the end, where read gives 0; likely is how much that is as a rule.
// One byte more than allowed tells.
func readAll(read func([]byte) (int, error), likely, max int64) ([]byte, error) {
	buf := make([]byte, 0, min(max, likely)+1)
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := read(buf[len(buf):min(int64(cap(buf)), max+1)])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return buf, nil
		}
		buf = buf[:len(buf)+n]
		if int64(len(buf)) > max {
			return nil, fmt.Errorf("it has more than the %d bytes allowed: %w", max, errdefs.ErrInvalidArgument)
		}
	}
}

func max0(n int64) int64 {
	if n <= 0 {
		return 511
	}
	return n
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
			return nil, fmt.Errorf("list %q: more than %d entries: %w", hostPath, max, errdefs.ErrResourceExhausted)
		}
	}
	sort.Strings(names)
	return names, nil
}
