// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/host/trust"
)

// maxSpec is the largest config.json that is read, in bytes. Those of Kubernetes have about 20,000.
const maxSpec = 64 << 20

// configName is the name of a bundle's spec.
const configName = "config.json"

// specFile is the OCI spec to read, and the file to write. Paths are the caller's.
type specFile struct {
	bundle, spec, out string // as the flags have them

	name    string     // for messages
	text    []byte     // as read
	in      openedFile // not set for standard input
	inPlace bool       // the file that is read is replaced
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
	base   string
	exists bool        // there is a file
	like   hostfs.Like // its mode and owner
}

// readSpec reads the whole spec.
func (f *specFile) readSpec(stdin io.Reader) (err error) {
	switch {
	case f.bundle != "":
		f.name = filepath.Join(f.bundle, configName)
		f.in, err = openInBundle(f.bundle)
	case f.spec == "-":
		f.name = "standard input"
		f.text, err = hostfs.ReadAtMost(stdin, maxSpec)
		return err
	default:
		f.name = f.spec
		f.in, err = openFile(f.spec)
	}
	if err != nil {
		return err
	}
	f.inPlace = f.bundle != "" && f.out == "" || f.isOutputInput()
	if f.inPlace {
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
		return false // writeSpec reports it
	}
	defer to.close()
	a, err1 := to.dir.Stat()
	b, err2 := f.in.dir.Stat()
	return err1 == nil && err2 == nil && os.SameFile(a, b) && to.base == f.in.base
}

// lockWait bounds the wait for another injection into the same file, which takes milliseconds.
const lockWait = 10 * time.Second

// lockDirectory keeps other injections out of the directory until it is closed, so that none of two at once
// undoes the other. Some file systems have no locks.
func (p *openedFile) lockDirectory(wait time.Duration) error {
	switch err := hostfs.LockWithin(int(p.dir.Fd()), wait); {
	case err == nil, errors.Is(err, unix.ENOLCK), errors.Is(err, unix.EOPNOTSUPP):
		return nil
	case errors.Is(err, unix.EWOULDBLOCK):
		return fmt.Errorf("another program has locked its directory for %v; run this again when it is done: %w", wait,
			errdefs.ErrUnavailable)
	case errors.Is(err, unix.EBADF):
		return fmt.Errorf("lock its directory: %w", unix.EACCES) // it may only be searched
	default:
		return fmt.Errorf("lock its directory: %w", err)
	}
}

func (f *specFile) close() { f.in.close() }

// writeSpec writes the spec. A file is replaced in one step: readers find all of the old one or all of
// the new one.
func (f *specFile) writeSpec(stdout io.Writer, text []byte) error {
	var err error
	name := f.out
	switch {
	case f.inPlace && bytes.Equal(text, f.text):
		return nil
	case f.inPlace:
		name = f.name
		err = hostfs.ReplaceAt(int(f.in.dir.Fd()), f.in.base, text, f.in.like)
	case f.out == "" || f.out == "-":
		name = "standard output"
		_, err = stdout.Write(text)
	default:
		err = f.writeOther(text)
	}
	if err != nil {
		return fmt.Errorf("write OCI spec %q: %w", name, err)
	}
	return nil
}

// writeOther writes the file of -o. An existing file keeps its mode and owner. A new one has the
// mode of the spec or, for standard input, the mode that the umask leaves.
func (f *specFile) writeOther(text []byte) error {
	to, err := openFile(f.out)
	if err != nil {
		return err
	}
	defer to.close()
	like := hostfs.Own(0o666 &^ currentUmask())
	switch {
	case to.exists:
		like = to.like
	case f.in.exists:
		like = hostfs.Own(f.in.like.Mode)
	}
	return hostfs.ReplaceAt(int(to.dir.Fd()), to.base, text, like)
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
	var failed *os.PathError
	if err != nil && !errors.As(err, &failed) {
		err = unix.ELOOP // the one error of filepath.EvalSymlinks that no system call has
	}
	if err != nil {
		return openedFile{}, hostfs.WithoutPath(err)
	}
	return openInDirectory(filepath.Dir(real), filepath.Base(real))
}

// openInBundle opens a bundle's config.json. In a directory that another user can change it must
// not be a symlink: the bundle's owner would choose which of the caller's files is replaced.
func openInBundle(bundle string) (openedFile, error) {
	path := filepath.Join(bundle, configName)
	link, err := os.Lstat(path)
	if err != nil || link.Mode()&os.ModeSymlink == 0 {
		return openInDirectory(bundle, configName)
	}
	var st unix.Stat_t
	if err := unix.Stat(bundle, &st); err != nil {
		return openedFile{}, err
	}
	if trust.Check(bundle, &st, trust.Options{}) != nil {
		return openedFile{}, fmt.Errorf("it is a symlink in a directory that another user can change; name the file that "+
			"it leads to with --spec FILE -o FILE: %w",
			errdefs.ErrPermissionDenied)
	}
	return openFile(path)
}

// openInDirectory opens a directory, and finds a file in it. Only a regular file or none is accepted.
func openInDirectory(dir, base string) (p openedFile, err error) {
	p.base = base
	p.dir, err = os.OpenFile(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if errors.Is(err, os.ErrPermission) {
		// Where the user may only search the directory, the file can be read, but not replaced.
		p.dir, err = os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	}
	if err != nil {
		return p, hostfs.WithoutPath(err)
	}
	var st unix.Stat_t
	err = unix.Fstatat(int(p.dir.Fd()), base, &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOENT):
		return p, nil
	case err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG:
		// Nor is a symlink to nothing, which /dev/stdout can be.
		err = fmt.Errorf("it is a %s, not a regular file; - stands for standard input and output: %w",
			hostfs.TypeName(st.Mode), errdefs.ErrInvalidArgument)
	}
	if err != nil {
		p.close()
		return openedFile{}, err
	}
	p.exists = true
	p.like = hostfs.Like{Mode: st.Mode & 0o7777, UID: int(st.Uid), GID: int(st.Gid)}
	return p, nil
}

func (p *openedFile) close() { p.dir.Close() }

// readContent reads the file below its open directory, so that a renamed directory does not lead to another file.
func (p *openedFile) readContent() ([]byte, error) {
	fd, err := unix.Openat(int(p.dir.Fd()), p.base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return hostfs.ReadRegular(fd, maxSpec)
}
