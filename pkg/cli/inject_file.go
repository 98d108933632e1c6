// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// maxSpec is the largest config.json that is read, in bytes; those of Kubernetes
// have some 20,000.
const maxSpec = 4 << 20

// specFile is where an OCI spec is read from, and where it is written to. Paths are
// those of the caller.
type specFile struct {
	bundle, spec, out string // as the flags have them

	name string // for messages
	text []byte // as read
	in   place  // not set for standard input
	one  bool   // out is the file that is read
}

// standard takes the names that systems have for standard input and output for what
// they stand for: as a path, /dev/stdout leads to the file that the output goes to,
// which would be replaced with all that it has from others.
func (f *specFile) standard() {
	switch f.spec {
	case "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0":
		f.spec = "-"
	}
	switch f.out {
	case "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1":
		f.out = "-"
	}
}

// place is a file by the directory it is in, which stays open so that what is read
// and what is replaced is the same.
type place struct {
	dir  *os.File
	path string
	base string
	st   unix.Stat_t
	set  bool // there is a file

	locked *os.File // the directory, while it is locked
}

// read reads the spec, whole.
func (f *specFile) read(stdin io.Reader) (err error) {
	f.name = f.spec
	switch {
	case f.bundle != "":
		f.name = filepath.Join(f.bundle, "config.json")
	case f.spec == "-":
		f.name = "standard input"
		f.text, err = hostfs.ReadAtMost(stdin, maxSpec)
		return err
	}
	if f.bundle != "" {
		f.in, err = openInBundle(f.bundle)
	} else {
		f.in, err = openPlace(f.name)
	}
	if err == nil && !f.in.set {
		err = unix.ENOENT
	}
	if err == nil {
		f.one = f.overItself()
	}
	if err == nil && f.inPlace() {
		err = f.in.lock(lockWait)
	}
	if err == nil {
		f.text, err = f.in.read()
	}
	if err != nil {
		f.close()
	}
	return err
}

// overItself tells that -o names the file that is read, by whatever path.
func (f *specFile) overItself() bool {
	if f.out == "" || f.out == "-" {
		return false
	}
	to, err := openPlace(f.out)
	if err != nil {
		return false // which the writing tells
	}
	defer to.close()
	var a, b unix.Stat_t
	return to.base == f.in.base && unix.Fstat(int(to.dir.Fd()), &a) == nil && unix.Fstat(int(f.in.dir.Fd()), &b) == nil && a.Dev == b.Dev && a.Ino == b.Ino
}

// lockWait is how long an injection waits for another into the same file, which
// takes milliseconds.
const lockWait = 10 * time.Second

// lock keeps other injections out of the directory until it is closed: of two at
// once neither undoes what the other did. Where the file system has no locks there
// is none.
func (p *place) lock(wait time.Duration) error {
	fd, err := unix.Openat(int(p.dir.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	p.locked = os.NewFile(uintptr(fd), p.path)
	for until := time.Now().Add(wait); ; time.Sleep(2 * time.Millisecond) {
		switch err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); {
		case err == nil, errors.Is(err, unix.ENOLCK), errors.Is(err, unix.EOPNOTSUPP):
			return nil
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("lock its directory: %w", err)
		case time.Now().After(until):
			return fmt.Errorf("another program has locked its directory for %v; run this again when it is done: %w", wait, errdefs.ErrUnavailable)
		}
	}
}

func (f *specFile) close() { f.in.close() }

// inPlace tells that the spec is written where it was read.
func (f *specFile) inPlace() bool { return f.bundle != "" && f.out == "" || f.one }

// write writes the spec to where it belongs: the file of before or the whole of
// the new one, and nothing else, is what anybody finds there.
func (f *specFile) write(stdout io.Writer, text []byte) error {
	switch {
	case f.same(text):
		return nil
	case f.inPlace():
		if err := f.in.replace(text, &f.in.st); err != nil {
			return fmt.Errorf("write OCI spec %q: %w", f.name, err)
		}
		return nil
	case f.out == "" || f.out == "-":
		if _, err := stdout.Write(text); err != nil {
			return fmt.Errorf("write OCI spec to standard output: %w", err)
		}
		return nil
	}
	if err := f.writeOther(text); err != nil {
		return fmt.Errorf("write OCI spec %q: %w", f.out, err)
	}
	return nil
}

// writeOther writes the file of -o. One that is there keeps its mode and owner; a
// new one has the mode of the spec, or, from standard input, what the umask leaves.
func (f *specFile) writeOther(text []byte) error {
	to, err := openPlace(f.out)
	if err != nil {
		return err
	}
	defer to.close()
	like := &to.st
	if !to.set {
		like = &unix.Stat_t{Mode: 0o666 &^ umask(), Uid: uint32(os.Geteuid()), Gid: uint32(os.Getegid())}
		if f.in.set {
			like.Mode = f.in.st.Mode
		}
	}
	return to.replace(text, like)
}

// umask is the process's. Nothing else makes files meanwhile.
func umask() uint32 {
	mask := unix.Umask(0o077)
	unix.Umask(mask)
	return uint32(mask)
}

// openPlace finds a file that is there, through symlinks, or where one would be.
// What is there and no regular file is an error.
func openPlace(path string) (place, error) {
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, os.ErrNotExist) {
		real, err = filepath.EvalSymlinks(filepath.Dir(path))
		real = filepath.Join(real, filepath.Base(path))
	}
	if err != nil {
		return place{}, cause(err)
	}
	p := place{path: real, base: filepath.Base(real)}
	if p.dir, err = os.OpenFile(filepath.Dir(real), unix.O_PATH|unix.O_DIRECTORY, 0); err != nil {
		return place{}, cause(err)
	}
	return p.stat()
}

// openInBundle opens a bundle's config.json. In a directory that another user can
// change it must not be a symlink: the owner of the bundle would choose which of the
// caller's files is replaced.
func openInBundle(bundle string) (place, error) {
	dir, err := os.OpenFile(bundle, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return place{}, cause(err)
	}
	p := place{dir: dir, path: filepath.Join(bundle, "config.json"), base: "config.json"}
	var st, file unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		p.close()
		return place{}, err
	}
	if st.Mode&0o022 == 0 && (st.Uid == 0 || int(st.Uid) == os.Geteuid()) {
		p.close()
		return openPlace(p.path)
	}
	if unix.Fstatat(int(dir.Fd()), p.base, &file, unix.AT_SYMLINK_NOFOLLOW) == nil && file.Mode&unix.S_IFMT == unix.S_IFLNK {
		p.close()
		return place{}, fmt.Errorf("it is a symlink in a directory that another user can change; name the file that it leads to with --spec FILE -o FILE: %w",
			errdefs.ErrPermissionDenied)
	}
	return p.stat()
}

// stat finds the file in its directory. Only a regular file or none is accepted.
func (p place) stat() (place, error) {
	err := unix.Fstatat(int(p.dir.Fd()), p.base, &p.st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOENT):
		return p, nil
	case err != nil:
		p.close()
		return place{}, err
	}
	if p.st.Mode&unix.S_IFMT != unix.S_IFREG {
		// Nor is a symlink to nothing, which /dev/stdout can be.
		p.close()
		return place{}, fmt.Errorf("it is a %s, not a regular file; - stands for standard input and output: %w", hostfs.TypeName(p.st.Mode), errdefs.ErrInvalidArgument)
	}
	p.set = true
	return p, nil
}

// cause is an error without the path, which the message has already.
func cause(err error) error {
	var at *os.PathError
	switch {
	case errors.As(err, &at):
		return at.Err
	case err != nil && strings.HasPrefix(err.Error(), "EvalSymlinks:"):
		return unix.ELOOP // the one error that filepath.EvalSymlinks has of its own
	}
	return err
}

func (p *place) close() {
	if p.locked != nil {
		p.locked.Close()
		p.locked = nil
	}
	if p.dir != nil {
		p.dir.Close()
		p.dir = nil
	}
}

func (p *place) read() ([]byte, error) {
	fd, err := unix.Openat(int(p.dir.Fd()), p.base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), p.base)
	defer file.Close()
	if err := unix.Fstat(fd, &p.st); err != nil {
		return nil, err
	}
	return hostfs.ReadRegular(file, maxSpec)
}

// replace puts text in the place of the file in one step, with the mode and owner
// of another, and on the disk.
func (p *place) replace(text []byte, like *unix.Stat_t) error {
	dir, err := unix.Openat(int(p.dir.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return hostfs.ReplaceAt(dir, p.base, text, hostfs.Like{Mode: like.Mode & 0o7777, UID: int(like.Uid), GID: int(like.Gid)})
}
