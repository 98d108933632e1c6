// SPDX-License-Identifier: Apache-2.0

package live

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// maxDanglingLinks bounds the number of dangling symlinks that are followed to create their target.
const maxDanglingLinks = 16

// openInRoot opens a path below the container's root with the container's view: symlinks cannot
// leave the root.
func openInRoot(root int, name string) (int, error) {
	return hostfs.Openat2(root, name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS})
}

// openTarget opens the mount point at a path below the container's root, a directory or a file. It
// creates the mount point and its parents if they are missing.
func openTarget(root int, name string, dir bool) (int, error) {
	name = path.Clean("/" + name)
	fd, err := openOrCreate(root, name, nil, func(parent int, base string) error {
		if dir {
			return unix.Mkdirat(parent, base, 0o755)
		}
		return unix.Mknodat(parent, base, unix.S_IFREG|0o644, 0)
	})
	if err != nil {
		return -1, err
	}
	if err := checkKind(fd, name, dir); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// openOrCreate opens a path below the container's root. If the path does not exist, it calls create
// first. The new file belongs to o. If o is nil, it belongs to the owner of its directory, which is
// the container's root in a user namespace.
func openOrCreate(root int, name string, o *owner, create func(parent int, base string) error) (int, error) {
	fd, err := openInRoot(root, name)
	if errors.Is(err, unix.ENOENT) && name != "/" {
		if err := createInRoot(root, name, o, create); err != nil {
			return -1, err
		}
		fd, err = openInRoot(root, name)
	}
	if err != nil {
		return -1, fmt.Errorf("find %q in the container: %w", name, err)
	}
	return fd, nil
}

// createInRoot calls create for a path that does not exist, following dangling symlinks to the path
// that they point to.
func createInRoot(root int, name string, o *owner, create func(parent int, base string) error) error {
	for range maxDanglingLinks {
		to, err := createOrReadLink(root, name, o, create)
		if err != nil || to == name {
			return err
		}
		name = to
	}
	return fmt.Errorf("find %q in the container: %w", name, unix.ELOOP)
}

// createOrReadLink calls create for a path that does not exist. It returns the path or, if the path
// is a dangling symlink, the symlink's target.
func createOrReadLink(root int, name string, o *owner, create func(parent int, base string) error) (string, error) {
	parent, err := openTarget(root, path.Dir(name), true)
	if err != nil {
		return "", err
	}
	defer unix.Close(parent)
	base := path.Base(name)
	var st unix.Stat_t
	if err := unix.Fstat(parent, &st); err != nil {
		return "", fmt.Errorf("create %q in the container: %w", name, err)
	}
	if o == nil {
		o = &owner{uid: int(st.Uid), gid: int(st.Gid)}
	}
	err = o.createFiles(func() error { return create(parent, base) })
	if errors.Is(err, unix.EEXIST) {
		buf := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(parent, base, buf)
		if err != nil {
			return name, nil // another process created it meanwhile
		}
		to := string(buf[:n])
		if !path.IsAbs(to) {
			to = path.Join(path.Dir(name), to)
		}
		return path.Clean(to), nil
	}
	if errors.Is(err, unix.EROFS) {
		return "", fmt.Errorf("create %q in the container: its file system is read-only; add the path to "+
			"the image: %w", name, err)
	}
	if err != nil {
		return "", fmt.Errorf("create %q in the container: %w", name, err)
	}
	return name, nil
}

// checkKind returns an error for mounting a directory on a file, or a file on a directory.
func checkKind(fd int, name string, dir bool) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR; isDir != dir {
		required := "directory"
		if !dir {
			required = "file"
		}
		return fmt.Errorf("the container has a %s at %q: must be a %s: %w", hostfs.TypeName(st.Mode), name, required,
			errdefs.ErrConflict)
	}
	return nil
}

// cleanDestination cleans a container path. It rejects relative paths and the root.
func cleanDestination(name string) (string, error) {
	if !path.IsAbs(name) || strings.IndexByte(name, 0) >= 0 || path.Clean(name) == "/" {
		return "", fmt.Errorf("invalid value %q: must be an absolute path below the container's root: %w", name,
			errdefs.ErrInvalidArgument)
	}
	return path.Clean(name), nil
}
