// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// parents is the rule for the directories on the path of root's file. In a sticky directory of
// root, no other user can rename, remove or replace root's file.
var parents = Options{Sticky: true, UnmappedOwner: true}

// OpenOwnDir opens one of Jackfield's own directories. It follows no symlink except /var/run. Every
// directory on the path must belong to root or to this process's user, and no other user may be
// able to write it. The error for any other directory is an *Error.
func OpenOwnDir(host hostfs.Root, dir string) (*os.File, error) {
	return openDir(host, dir, nil, Options{})
}

// MakeOwnDir is like OpenOwnDir, but creates a missing directory with mode perm, and missing parents.
func MakeOwnDir(host hostfs.Root, dir string, perm uint32) (*os.File, error) {
	return openDir(host, dir, &perm, Options{})
}

// MakeSharedDir is like MakeOwnDir, but the owner and group of the directory can belong to another program.
func MakeSharedDir(host hostfs.Root, dir string, perm uint32) (*os.File, error) {
	return openDir(host, dir, &perm, sharedDir)
}

// OpenSharedDir opens a directory regardless of its owner and mode, to remove an entry that the
// caller identifies. Its parents are checked like in OpenOwnDir.
func OpenSharedDir(host hostfs.Root, dir string) (*os.File, error) {
	return openDir(host, dir, nil, Options{AnyOwner: true, AnyMode: true})
}

// sharedDir is the rule for a directory that another program's user or group can write.
var sharedDir = Options{AnyOwner: true, AnyGroup: true}

// openDir opens a directory component by component from the root, and checks each by its
// descriptor. last is the rule for the directory itself.
func openDir(host hostfs.Root, dir string, perm *uint32, last Options) (*os.File, error) {
	if err := hostfs.CheckPath(dir); err != nil {
		return nil, fmt.Errorf("open directory %q: %w", dir, err)
	}
	fd, err := host.OpenFD("/", unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	names := strings.Split(strings.Trim(withoutVarRun(host, dir), "/"), "/")
	at := "/"
	for i, name := range names {
		flags, create, rule := unix.O_PATH, perm, parents
		if i == len(names)-1 {
			flags, rule = unix.O_RDONLY, last
		} else if perm != nil {
			create = new(uint32)
			*create = 0o755
		}
		at = path.Join(at, name)
		next, err := openComponent(fd, at, name, flags, create, rule)
		unix.Close(fd)
		if err != nil {
			return nil, err
		}
		fd = next
	}
	return os.NewFile(uintptr(fd), at), nil
}

// withoutVarRun returns the clean path of a directory, with /run instead of the symlink /var/run.
func withoutVarRun(host hostfs.Root, dir string) string {
	clean := path.Clean(dir)
	if rest, below := strings.CutPrefix(clean+"/", "/var/run/"); below {
		return path.Join(host.Canonical("/var/run"), rest)
	}
	return clean
}

// openComponent opens a directory in another one, and creates it if perm is set. at is its host
// path.
func openComponent(parent int, at, name string, flags int, perm *uint32, rule Options) (int, error) {
	fd, err := unix.Openat(parent, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) && perm != nil {
		fd, err = makeComponent(parent, name, *perm)
	}
	if err != nil {
		return -1, hostfs.PathError("open", at, err)
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err != nil {
		err = hostfs.PathError("inspect", at, err)
	} else if fault := checkComponent(at, &st, rule); fault != nil {
		err = fault
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	if flags&unix.O_PATH != 0 {
		return fd, nil
	}
	dir, err := unix.Openat(fd, ".", flags|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	unix.Close(fd)
	return dir, hostfs.PathError("open", at, err)
}

// checkComponent checks one directory of a path.
func checkComponent(at string, st *unix.Stat_t, rule Options) error {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		if fault := Check(at, st, rule); fault != nil {
			return fault
		}
		return nil
	case unix.S_IFLNK:
		return &Error{Path: at, Found: "a symlink", Rule: "no symlink is followed to this directory",
			Remedy: "use the path that it leads to"}
	}
	return hostfs.PathError("open", at, unix.ENOTDIR)
}

// makeComponent creates a directory and writes its name to the disk. If another process creates it
// first, that is no error.
func makeComponent(parent int, name string, perm uint32) (int, error) {
	fd, err := hostfs.MkdirAt(parent, name, perm)
	if err == nil {
		unix.Close(fd)
		var dir int
		if dir, err = unix.Openat(parent, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
			err = hostfs.SyncDir(dir)
			unix.Close(dir)
		}
	}
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, err
	}
	return unix.Openat(parent, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}
