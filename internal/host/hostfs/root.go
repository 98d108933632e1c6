// SPDX-License-Identifier: Apache-2.0

package hostfs

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Root is the directory to which all host paths are relative. The zero value is the host's own
// root.
type Root struct {
	dir string // "" stands for "/"
}

// Host returns the root of the machine itself.
func Host() Root { return Root{} }

// New makes dir the root of all host paths. It must be an existing directory. Symlinks in dir
// itself are resolved once, here.
func New(dir string) (Root, error) {
	abs, err := filepath.Abs(dir)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	var st os.FileInfo
	if err == nil {
		st, err = os.Stat(abs)
	}
	switch {
	case err != nil:
		return Root{}, fmt.Errorf("open host root %q: %w", dir, sentinel(err))
	case !st.IsDir():
		return Root{}, errdefs.ErrInvalidArgument.WithMessage(fmt.Sprintf("open host root %q: not a directory", dir))
	case abs == "/":
		return Root{}, nil
	}
	return Root{dir: abs}, nil
}

// Dir returns the root's directory on the machine; it is "/" in production.
func (r Root) Dir() string {
	if r.dir == "" {
		return "/"
	}
	return r.dir
}

// IsLive reports whether the root belongs to the running system. In any other tree, file owners and
// mounts have no meaning.
func (r Root) IsLive() bool { return r.dir == "" }

// Path returns the machine's path of hostPath by its text alone: it resolves no symlink. It is
// meant for messages, and for passing a path to another program.
func (r Root) Path(hostPath string) string {
	clean := filepath.Clean("/" + hostPath)
	if r.dir == "" {
		return clean
	}
	return filepath.Join(r.dir, clean)
}

// Open opens hostPath. Symlinks are followed inside the root, magic links are refused. O_CLOEXEC is
// always set, and O_NONBLOCK if opening could wait.
func (r Root) Open(hostPath string, flags int) (*os.File, error) {
	fd, err := r.OpenFD(hostPath, flags)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), hostPath), nil
}

// OpenFD is like Open, but returns a descriptor that the caller closes with unix.Close.
func (r Root) OpenFD(hostPath string, flags int) (int, error) {
	fd, err := r.open(hostPath, flags, 0)
	return fd, PathError("open", hostPath, err)
}

// open opens a host path. Symlinks cannot lead out of the root (RESOLVE_IN_ROOT), and magic links of /proc are not
// followed.
func (r Root) open(hostPath string, flags int, resolve uint64) (int, error) {
	if err := CheckPath(hostPath); err != nil {
		return -1, err
	}
	how := unix.OpenHow{
		Flags:   uint64(flags | unix.O_CLOEXEC | nonblock(flags)),
		Resolve: unix.RESOLVE_NO_MAGICLINKS | resolve,
	}
	if r.dir == "" {
		return Openat2(unix.AT_FDCWD, hostPath, &how)
	}
	dirfd, err := unix.Open(r.dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(dirfd)
	how.Resolve |= unix.RESOLVE_IN_ROOT
	return Openat2(dirfd, hostPath, &how)
}

// StatNoSymlinks returns the stat of a canonical path (see [Root.Resolve]). A symlink anywhere
// on the path is errdefs.ErrPermissionDenied.
func (r Root) StatNoSymlinks(hostPath string) (unix.Stat_t, error) {
	var st unix.Stat_t
	fd, err := r.OpenNoSymlinks(hostPath, unix.O_PATH)
	if err != nil {
		return st, err
	}
	defer unix.Close(fd)
	err = unix.Fstat(fd, &st)
	return st, PathError("stat", hostPath, err)
}

// OpenNoSymlinks opens a canonical path (see [Root.Resolve]) for a caller that closes the
// descriptor with unix.Close. A symlink anywhere on the path is errdefs.ErrPermissionDenied.
// O_CLOEXEC is always set, and O_NONBLOCK if opening could wait.
func (r Root) OpenNoSymlinks(hostPath string, flags int) (int, error) {
	fd, err := r.open(hostPath, flags, unix.RESOLVE_NO_SYMLINKS)
	if errors.Is(err, unix.ELOOP) {
		err = errSymlink
	}
	return fd, PathError("open", hostPath, err)
}

// errSymlink is the error for a path with a symlink.
var errSymlink = errdefs.ErrPermissionDenied.WithMessage("there is a symlink on the path, and none is followed there")

// OpenBeneath opens rel below the directory dir. In dir, symlinks are followed like in [Root.Open].
// In rel, none is followed (RESOLVE_BENEATH, NO_SYMLINKS, NO_MAGICLINKS), and ".." cannot leave
// dir. A symlink in rel is errdefs.ErrPermissionDenied.
func (r Root) OpenBeneath(dir, rel string, flags int) (*os.File, error) {
	d, err := r.OpenFD(dir, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(d)
	name := filepath.Join(dir, rel)
	fd, err := OpenatBeneath(d, rel, flags)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// OpenatBeneath is [Root.OpenBeneath] for a directory that is already open.
func OpenatBeneath(dirfd int, rel string, flags int) (int, error) {
	if strings.IndexByte(rel, 0) >= 0 {
		return -1, errdefs.ErrInvalidArgument.WithMessage(fmt.Sprintf("there is a NUL byte in %q", rel))
	}
	if filepath.IsAbs(rel) {
		return -1, errdefs.ErrInvalidArgument.WithMessage(fmt.Sprintf("%q is not relative", rel))
	}
	fd, err := Openat2(dirfd, rel, &unix.OpenHow{
		Flags:   uint64(flags | unix.O_CLOEXEC | nonblock(flags)),
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	switch {
	case err == nil:
		return fd, nil
	case errors.Is(err, unix.ELOOP):
		return -1, errSymlink
	case errors.Is(err, unix.EXDEV):
		return -1, errdefs.ErrPermissionDenied.WithMessage("it leads out of the directory")
	}
	return -1, sentinel(err)
}

// Stat returns the stat of the file at hostPath, following symlinks.
func (r Root) Stat(hostPath string) (unix.Stat_t, error) { return r.stat(hostPath, 0) }

// Lstat is like Stat, but does not follow a symlink in the last element.
func (r Root) Lstat(hostPath string) (unix.Stat_t, error) { return r.stat(hostPath, unix.O_NOFOLLOW) }

// stat stats a host path. Without a root of its own it needs one system call and no descriptor.
func (r Root) stat(hostPath string, flags int) (unix.Stat_t, error) {
	var st unix.Stat_t
	if r.dir == "" {
		err := CheckPath(hostPath)
		if err == nil {
			at := 0
			if flags&unix.O_NOFOLLOW != 0 {
				at = unix.AT_SYMLINK_NOFOLLOW
			}
			err = unix.Fstatat(unix.AT_FDCWD, hostPath, &st, at)
		}
		return st, PathError("stat", hostPath, err)
	}
	fd, err := r.open(hostPath, unix.O_PATH|flags, 0)
	if err == nil {
		err = unix.Fstat(fd, &st)
		unix.Close(fd)
	}
	return st, PathError("stat", hostPath, err)
}

// Readlink returns the target of the symlink hostPath.
func (r Root) Readlink(hostPath string) (string, error) {
	buf := make([]byte, unix.PathMax)
	if r.dir == "" { // a third of the system calls
		n, err := unix.Readlink(hostPath, buf)
		return string(buf[:max(n, 0)]), PathError("readlink", hostPath, err)
	}
	fd, err := r.open(hostPath, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return "", PathError("readlink", hostPath, err)
	}
	defer unix.Close(fd)
	n, err := unix.Readlinkat(fd, "", buf)
	return string(buf[:max(n, 0)]), PathError("readlink", hostPath, err)
}

// Resolve returns the canonical host path of hostPath. It follows every symlink inside the root.
func (r Root) Resolve(hostPath string) (string, error) {
	fd, err := r.open(hostPath, unix.O_PATH, 0)
	if err != nil {
		return "", PathError("resolve", hostPath, err)
	}
	defer unix.Close(fd)
	real, err := os.Readlink(DescriptorPath(fd))
	if err != nil {
		return "", &os.PathError{Op: "resolve", Path: hostPath, Err: err}
	}
	if r.dir == "" {
		return real, nil
	}
	rel, ok := strings.CutPrefix(real, r.dir)
	if !ok || rel != "" && rel[0] != '/' {
		return "", &os.PathError{Op: "resolve", Path: hostPath,
			Err: errdefs.ErrPermissionDenied.WithMessage(fmt.Sprintf("it leads out of the host root %q", r.dir))}
	}
	if rel == "" {
		return "/", nil
	}
	return rel, nil
}

// Canonical is [Root.Resolve] for a path that need not exist. It resolves the existing part, and
// appends the rest unchanged.
func (r Root) Canonical(hostPath string) string {
	clean := filepath.Clean("/" + hostPath)
	for dir, rest := clean, ""; ; {
		if real, err := r.Resolve(dir); err == nil {
			return filepath.Join(real, rest)
		}
		if dir == "/" {
			return clean
		}
		dir, rest = filepath.Dir(dir), filepath.Join(filepath.Base(dir), rest)
	}
}

// IsSameFile reports whether two host paths refer to the same file. Names of abstract sockets are
// not paths.
func (r Root) IsSameFile(a, b string) bool {
	return a == b || filepath.IsAbs(a) && filepath.IsAbs(b) && r.Canonical(a) == r.Canonical(b)
}

// MaxSocketPath is the longest path of a UNIX socket in bytes: sun_path without its NUL, unix(7).
const MaxSocketPath = 107

// CheckPath returns an error unless a path is absolute and has no NUL byte.
func CheckPath(p string) error {
	switch {
	case p == "":
		return errdefs.ErrInvalidArgument.WithMessage("the path is empty")
	case p[0] != '/':
		return errdefs.ErrInvalidArgument.WithMessage(fmt.Sprintf("%q is not absolute", p))
	case strings.IndexByte(p, 0) >= 0:
		return errdefs.ErrInvalidArgument.WithMessage(fmt.Sprintf("there is a NUL byte in %q", p))
	}
	return nil
}

// CheckID rejects an ID of a container or sandbox that is unsafe as a file name, because it leaves
// its directory or begins with a dot.
func CheckID(id string) error {
	if id != "" && len(id) <= 128 && id[0] != '.' && !strings.ContainsFunc(id, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' ||
			r == '.')
	}) {
		return nil
	}
	return errdefs.ErrInvalidArgument.WithMessage(fmt.Sprintf("invalid value %q: must be 1 to 128 of A-Z a-z 0-9 - "+
		"_ . and no dot first", id))
}

// WithoutPath returns an error without its path, for messages that contain the path anyway.
func WithoutPath(err error) error {
	var at *os.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

// IgnoreNotFound returns nil for errdefs.ErrNotFound, and other errors unchanged.
func IgnoreNotFound(err error) error {
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}

// Errno returns the errno of an error, EIO for an error without one, and 0 for nil.
func Errno(err error) unix.Errno {
	var no unix.Errno
	if err != nil && !errors.As(err, &no) {
		return unix.EIO
	}
	return no
}

// TypeName returns the name of a mode's file type, for messages.
func TypeName(mode uint32) string {
	names := map[uint32]string{
		unix.S_IFREG: "regular file", unix.S_IFDIR: "directory", unix.S_IFLNK: "symlink", unix.S_IFIFO: "FIFO",
		unix.S_IFSOCK: "socket", unix.S_IFCHR: "character device", unix.S_IFBLK: "block device",
	}
	return cmp.Or(names[mode&unix.S_IFMT], "file of unknown type")
}

// DeviceType returns the type of a device node or FIFO in CDI's and OCI's spelling, or "" for other
// files.
func DeviceType(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFCHR:
		return "c"
	case unix.S_IFBLK:
		return "b"
	case unix.S_IFIFO:
		return "p"
	}
	return ""
}

// nonblock returns O_NONBLOCK if opening could wait. The kernel does not accept it together with
// O_PATH.
func nonblock(flags int) int {
	if flags&(unix.O_PATH|unix.O_DIRECTORY) != 0 {
		return 0
	}
	return unix.O_NONBLOCK
}

// Openat2 is openat2(2). It retries after EAGAIN, which reports a rename during the path walk, and
// after EINTR.
func Openat2(dirfd int, path string, how *unix.OpenHow) (int, error) {
	for try := 0; ; try++ {
		fd, err := unix.Openat2(dirfd, path, how)
		if (errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR)) && try < 64 {
			continue
		}
		return fd, err
	}
}

// PathError adds the operation and the path to an error, and the sentinel to its errno.
func PathError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &os.PathError{Op: op, Path: path, Err: sentinel(err)}
}

// sentinel adds to an errno the errdefs sentinel for callers.
func sentinel(err error) error {
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return &errnoError{err, errdefs.ErrNotFound}
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.ELOOP), errors.Is(err,
		unix.EXDEV):
		return &errnoError{err, errdefs.ErrPermissionDenied}
	case errors.Is(err, unix.ENAMETOOLONG), errors.Is(err, unix.ENXIO):
		return &errnoError{err, errdefs.ErrInvalidArgument}
	}
	return err
}

// errnoError prints the errno, and matches both the errno and the sentinel in errors.Is.
type errnoError struct{ errno, sentinel error }

func (e *errnoError) Error() string        { return e.errno.Error() }
func (e *errnoError) Unwrap() error        { return e.errno }
func (e *errnoError) Is(target error) bool { return target == e.sentinel }
