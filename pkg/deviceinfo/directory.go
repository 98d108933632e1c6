// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/name"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

const (
	// maxListed bounds the names in a directory.
	maxListed = 1 << 20

	dirMode  = 0o755
	fileMode = 0o644

	// Readers ignore names that start with ".", such as this one and temporary files.
	lockName = ".jackfield.lock"

	// lockWait is how long a writer waits for another writer, which holds the lock for one read
	// and one write.
	lockWait = 5 * time.Second
)

// directory is an open directory of device-info files.
type directory struct {
	*os.File
	path string // on the host, for messages
}

// cleanDir returns dir, or def if dir is empty, as an absolute clean path.
func cleanDir(dir, def string) (string, error) {
	dir = cmp.Or(dir, def)
	if err := hostfs.CheckPath(dir); err != nil {
		return "", fmt.Errorf("device-info directory %q: %w", dir, err)
	}
	return path.Clean(dir), nil
}

// openRoot returns the root of all host paths; "" is "/".
func openRoot(dir string) (hostfs.Root, error) {
	if dir == "" || dir == "/" {
		return hostfs.Host(), nil
	}
	return hostfs.New(dir)
}

// openDir opens a directory for listing and for opening files in it. Only a missing
// directory is errdefs.ErrNotFound.
func openDir(host hostfs.Root, dir string) (*directory, error) {
	f, err := host.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, dirError("open", dir, err)
	}
	return &directory{f, dir}, nil
}

// createDir is like openDir, but creates the directory and its parents if they are missing. Their mode
// lets CNI plugins and agents of other users read the files.
func createDir(host hostfs.Root, dir string) (*directory, error) {
	f, err := host.MakeDir(dir, dirMode)
	if err != nil {
		return nil, dirError("create", dir, err)
	}
	return &directory{f, dir}, nil
}

// dirError describes an error of a directory. A path that is not a directory is
// errdefs.ErrInvalidArgument.
func dirError(verb, dir string, err error) error {
	if errors.Is(err, unix.ENOTDIR) {
		return fmt.Errorf("%s device-info directory %q: it, or a parent of it, is not a directory: %w",
			verb, dir, errdefs.ErrInvalidArgument)
	}
	return fmt.Errorf("%s device-info directory %q: %w", verb, dir, err)
}

func (d *directory) fd() int { return int(d.Fd()) }

// filePath returns the host path of a file in the directory.
func (d *directory) filePath(name string) string { return path.Join(d.path, name) }

// visitNames calls visit with every name in the directory, unsorted. After limit names it stops
// with errdefs.ErrResourceExhausted.
func (d *directory) visitNames(limit int, visit func(name string)) error {
	if _, err := d.Seek(0, io.SeekStart); err != nil {
		return dirError("list", d.path, err)
	}
	for seen := 0; ; {
		names, err := d.Readdirnames(1024)
		for _, name := range names {
			if seen++; seen > limit {
				return fmt.Errorf("list device-info directory %q: it holds more than %d names; remove the stale files: %w",
					d.path, limit, errdefs.ErrResourceExhausted)
			}
			visit(name)
		}
		if errors.Is(err, io.EOF) || err == nil && len(names) == 0 {
			return nil
		}
		if err != nil {
			return dirError("list", d.path, err)
		}
	}
}

// listNames returns the names that match, sorted. After an error it returns those found before.
func (d *directory) listNames(match func(name string) bool) (names []string, err error) {
	err = d.visitNames(maxListed, func(name string) {
		if match(name) {
			names = append(names, name)
		}
	})
	slices.Sort(names)
	return names, err
}

// listFiles reads the files in a host directory whose names match, sorted. "" is the directory def.
func listFiles(root, dir, def string, match func(name string) bool) ([]Entry, error) {
	host, err := openRoot(root)
	if err != nil {
		return nil, err
	}
	dir, err = cleanDir(dir, def)
	if err != nil {
		return nil, err
	}
	d, err := openDir(host, dir)
	if err != nil {
		return nil, hostfs.IgnoreNotFound(err)
	}
	defer d.Close()
	names, err := d.listNames(func(file string) bool { return name.CheckFile(file) == nil && match(file) })
	if err != nil {
		return nil, err
	}
	return d.readEntries(names), nil
}

// readEntries reads the files with the given names. A file that is removed meanwhile has no entry.
func (d *directory) readEntries(names []string) []Entry {
	var entries []Entry
	for _, name := range names {
		info, _, err := d.readInfo(name)
		if !errdefs.IsNotFound(err) {
			entries = append(entries, Entry{File: d.filePath(name), Info: info, Err: err})
		}
	}
	return entries
}

// readInfo reads a file, and returns its bytes as well.
func (d *directory) readInfo(name string) (*Info, []byte, error) {
	data, err := d.readFile(name)
	if err != nil {
		return nil, nil, err
	}
	info, err := Parse(data, d.filePath(name))
	return info, data, err
}

// readFile returns the content of a file. Only regular files are opened, because opening a FIFO or
// a device can block or have an effect; another type, and a file that is too large, is a
// FieldErrors.
func (d *directory) readFile(name string) ([]byte, error) {
	file := d.filePath(name)
	var st unix.Stat_t
	if err := unix.Fstatat(d.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, fileError("read", file, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, FieldErrors{{File: file, Found: "a " + hostfs.TypeName(st.Mode), Rule: "must be a regular file",
			Section: inSection("4")}}
	}
	if st.Size > MaxSize {
		return nil, tooLarge(file, st.Size, MaxSize)
	}
	// The name may lead to another file by now, and a file can have more content than its size.
	data, err := hostfs.ReadFileAt(d.fd(), name, MaxSize)
	switch {
	case errdefs.IsInvalidArgument(err):
		rule := fmt.Sprintf("must be a regular file of at most %d bytes", MaxSize)
		return nil, FieldErrors{{File: file, Found: "another file than before: " + err.Error(), Rule: rule}}
	case err != nil:
		return nil, fileError("read", file, err)
	}
	return data, nil
}

// replaceFile replaces a file by data, atomically and durably.
func (d *directory) replaceFile(name string, data []byte) error {
	if err := hostfs.ReplaceAt(d.fd(), name, data, hostfs.Own(fileMode)); err != nil {
		return fileError("write", d.filePath(name), err)
	}
	return nil
}

// removeFile removes a file; a missing file is no error. Of a symlink it removes the link.
func (d *directory) removeFile(name string) error {
	err := unix.Unlinkat(d.fd(), name, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err == nil {
		err = hostfs.SyncDir(d.fd())
	}
	if err != nil {
		return fileError("remove", d.filePath(name), err)
	}
	return nil
}

// withLock runs fn while no other writer of this package changes the directory. The lock is
// on a file that only its owner can open: a user who can open a file can also lock it, and
// block every writer.
//
// If another writer holds the lock for longer than wait, the error is
// errdefs.ErrUnavailable.
func (d *directory) withLock(wait time.Duration, fn func() error) error {
	file := d.filePath(lockName)
	const flags = unix.O_RDWR | unix.O_CREAT | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err := unix.Openat(d.fd(), lockName, flags, 0o600)
	if err != nil {
		return fileError("lock", file, err)
	}
	defer unix.Close(fd)
	switch err := hostfs.LockWithin(fd, wait); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return fmt.Errorf("lock device-info file %q: another writer holds the lock for more than %v: %w",
			file, wait, errdefs.ErrUnavailable)
	case err != nil:
		return fileError("lock", file, err)
	}
	return fn()
}

// locateFile returns the place of a file in the host directory dir; "" is the directory def.
func locateFile(root, dir, def, name string) (infoFile, error) {
	host, err := openRoot(root)
	if err != nil {
		return infoFile{}, err
	}
	dir, err = cleanDir(dir, def)
	return infoFile{host, dir, name}, err
}

// infoFile is the place of one device-info file. Neither the file nor its directory need exist.
type infoFile struct {
	host hostfs.Root
	dir  string // host path
	name string
}

// path returns the host path of the file.
func (f infoFile) path() string { return path.Join(f.dir, f.name) }

// read returns the content, decoded and as bytes. The error is errdefs.ErrNotFound if the file does not exist yet.
func (f infoFile) read() (*Info, []byte, error) {
	d, err := openDir(f.host, f.dir)
	if err != nil {
		return nil, nil, err
	}
	defer d.Close()
	return d.readInfo(f.name)
}

// remove removes the file. A missing file or directory is no error.
func (f infoFile) remove() error {
	d, err := openDir(f.host, f.dir)
	if err != nil {
		return hostfs.IgnoreNotFound(err)
	}
	defer d.Close()
	return d.removeFile(f.name)
}

// change creates the directory if it is missing, and runs fn while no other writer of this package
// changes the directory.
func (f infoFile) change(fn func(d *directory) error) error {
	d, err := createDir(f.host, f.dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.withLock(lockWait, func() error { return fn(d) })
}

// replace replaces the file by data while no other writer of this package is active.
func (f infoFile) replace(data []byte) error {
	return f.change(func(d *directory) error { return d.replaceFile(f.name, data) })
}

// fileError adds the sentinel of containerd/errdefs to an errno.
func fileError(verb, file string, err error) error {
	switch hostfs.Errno(err) {
	case unix.ENOENT:
		err = fmt.Errorf("%w: %w", err, errdefs.ErrNotFound)
	case unix.EACCES, unix.EPERM, unix.EROFS:
		err = fmt.Errorf("%w: %w", err, errdefs.ErrPermissionDenied)
	case unix.EISDIR, unix.ENOTDIR:
		err = fmt.Errorf("%w: %w", err, errdefs.ErrFailedPrecondition)
	case unix.ENOSPC, unix.EDQUOT, unix.EMFILE, unix.ENFILE:
		err = fmt.Errorf("%w: %w", err, errdefs.ErrResourceExhausted)
	}
	return fmt.Errorf("%s device-info file %q: %w", verb, file, err)
}
