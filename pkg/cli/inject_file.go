// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/trust"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

// maxSpec is the largest config.json that is read, in bytes. Those of Kubernetes have about 20,000.
const maxSpec = 4 << 20

// specFile is the OCI spec to read, and the file to write. Paths are the caller's.
type specFile struct {
	bundle, spec, out string // as the flags have them

	name            string     // for messages
	text            []byte     // as read
	in              openedFile // not set for standard input
	overwritesInput bool       // out is the file that is read
}

// resolveStdio replaces the system's names of standard input and output by -. As a path,
// /dev/stdout leads to the file behind it, which would be replaced with everything that other
// processes wrote.
func (f *specFile) resolveStdio() {
	switch f.spec {
	case "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0":
		f.spec = "-"
	}
	switch f.out {
	case "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1":
		f.out = "-"
	}
}

// openedFile is a file in a directory that stays open, so that the file that is read is the file
// that is replaced.
type openedFile struct {
	dir    *os.File
	path   string
	base   string
	st     unix.Stat_t
	exists bool // there is a file

	locked *os.File // the directory, while it is locked
}

// readSpec reads the whole spec.
func (f *specFile) readSpec(stdin io.Reader) (err error) {
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
		f.in, err = openFile(f.name)
	}
	if err == nil && !f.in.exists {
		err = unix.ENOENT
	}
	if err == nil {
		f.overwritesInput = f.isOutputInput()
	}
	if err == nil && f.inPlace() {
		err = f.in.lockDirectory(lockWait)
	}
	if err == nil {
		f.text, err = f.in.readContent()
	}
	if err != nil {
		f.close()
	}
	return err
}

// isOutputInput reports whether -o names the file that is read, by whatever path.
func (f *specFile) isOutputInput() bool {
	if f.out == "" || f.out == "-" {
		return false
	}
	to, err := openFile(f.out)
	if err != nil {
		return false // write reports it
	}
	defer to.close()
	var a, b unix.Stat_t
	return to.base == f.in.base && unix.Fstat(int(to.dir.Fd()), &a) == nil && unix.Fstat(int(f.in.dir.Fd()), &b) == nil && a.Dev == b.Dev && a.Ino == b.Ino
}

// lockWait bounds the wait for another injection into the same file, which takes milliseconds.
const lockWait = 10 * time.Second

// lockDirectory keeps other injections out of the directory until it is closed, so that none of two at once
// undoes the other. Some file systems have no locks.
func (p *openedFile) lockDirectory(wait time.Duration) error {
	fd, err := unix.Openat(int(p.dir.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	p.locked = os.NewFile(uintptr(fd), p.path)
	switch err := hostfs.LockWithin(fd, wait); {
	case err == nil, errors.Is(err, unix.ENOLCK), errors.Is(err, unix.EOPNOTSUPP):
		return nil
	case errors.Is(err, unix.EWOULDBLOCK):
		return fmt.Errorf("another program has locked its directory for %v; run this again when it is done: %w", wait, errdefs.ErrUnavailable)
	default:
		return fmt.Errorf("lock its directory: %w", err)
	}
}

func (f *specFile) close() { f.in.close() }

// inPlace reports whether the spec is written where it was read.
func (f *specFile) inPlace() bool { return f.bundle != "" && f.out == "" || f.overwritesInput }

// writeSpec writes the spec. A file is replaced in one step: readers find all of the old one or all of
// the new one.
func (f *specFile) writeSpec(stdout io.Writer, text []byte) error {
	switch {
	case f.inPlace() && bytes.Equal(text, f.text):
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

// writeOther writes the file of -o. An existing file keeps its mode and owner. A new one has the
// mode of the spec or, for standard input, what the umask leaves.
func (f *specFile) writeOther(text []byte) error {
	to, err := openFile(f.out)
	if err != nil {
		return err
	}
	defer to.close()
	like := &to.st
	if !to.exists {
		like = &unix.Stat_t{Mode: 0o666 &^ currentUmask(), Uid: uint32(os.Geteuid()), Gid: uint32(os.Getegid())}
		if f.in.exists {
			like.Mode = f.in.st.Mode
		}
	}
	return to.replace(text, like)
}

// currentUmask returns the process's umask. Nothing else creates files meanwhile.
func currentUmask() uint32 {
	mask := unix.Umask(0o077)
	unix.Umask(mask)
	return uint32(mask)
}

// openFile opens the directory of a file that exists, through symlinks, or of one that would be
// created. Only a regular file is accepted.
func openFile(path string) (openedFile, error) {
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, os.ErrNotExist) {
		real, err = filepath.EvalSymlinks(filepath.Dir(path))
		real = filepath.Join(real, filepath.Base(path))
	}
	if err != nil {
		return openedFile{}, withoutPath(err)
	}
	p := openedFile{path: real, base: filepath.Base(real)}
	if p.dir, err = os.OpenFile(filepath.Dir(real), unix.O_PATH|unix.O_DIRECTORY, 0); err != nil {
		return openedFile{}, withoutPath(err)
	}
	return p.findFile()
}

// openInBundle opens a bundle's config.json. In a directory that another user can change it must
// not be a symlink: the bundle's owner would choose which of the caller's files is replaced.
func openInBundle(bundle string) (openedFile, error) {
	dir, err := os.OpenFile(bundle, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return openedFile{}, withoutPath(err)
	}
	p := openedFile{dir: dir, path: filepath.Join(bundle, "config.json"), base: "config.json"}
	var st, file unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		p.close()
		return openedFile{}, err
	}
	if trust.Check(bundle, &st, trust.Options{}) == nil {
		p.close()
		return openFile(p.path)
	}
	if unix.Fstatat(int(dir.Fd()), p.base, &file, unix.AT_SYMLINK_NOFOLLOW) == nil && file.Mode&unix.S_IFMT == unix.S_IFLNK {
		p.close()
		return openedFile{}, fmt.Errorf("it is a symlink in a directory that another user can change; name the file that it leads to with --spec FILE -o FILE: %w",
			errdefs.ErrPermissionDenied)
	}
	return p.findFile()
}

// findFile finds the file in its directory. Only a regular file or none is accepted.
func (p openedFile) findFile() (openedFile, error) {
	err := unix.Fstatat(int(p.dir.Fd()), p.base, &p.st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOENT):
		return p, nil
	case err != nil:
		p.close()
		return openedFile{}, err
	}
	if p.st.Mode&unix.S_IFMT != unix.S_IFREG {
		// Nor is a symlink to nothing, which /dev/stdout can be.
		p.close()
		return openedFile{}, fmt.Errorf("it is a %s, not a regular file; - stands for standard input and output: %w", hostfs.TypeName(p.st.Mode), errdefs.ErrInvalidArgument)
	}
	p.exists = true
	return p, nil
}

// withoutPath returns an error without its path, which the message already has.
func withoutPath(err error) error {
	if err != nil && strings.HasPrefix(err.Error(), "EvalSymlinks:") {
		return unix.ELOOP // the one error that filepath.EvalSymlinks has of its own
	}
	return hostfs.WithoutPath(err)
}

func (p *openedFile) close() {
	if p.locked != nil {
		p.locked.Close()
		p.locked = nil
	}
	if p.dir != nil {
		p.dir.Close()
		p.dir = nil
	}
}

func (p *openedFile) readContent() ([]byte, error) {
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

// replace replaces the file in one step, with the mode and owner of another file, and syncs it to
// the disk.
func (p *openedFile) replace(text []byte, like *unix.Stat_t) error {
	dir, err := unix.Openat(int(p.dir.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return hostfs.ReplaceAt(dir, p.base, text, hostfs.Like{Mode: like.Mode & 0o7777, UID: int(like.Uid), GID: int(like.Gid)})
}
