// SPDX-License-Identifier: Apache-2.0

package live

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// maxLinks bounds the symlinks to nothing that are followed to make what they
// point at.
const maxLinks = 16

// lookup opens a path below the container's root as the container would: symlinks
// stay in the root.
func lookup(root int, name string) (int, error) {
	for try := 0; ; try++ {
		fd, err := unix.Openat2(root, name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS})
		if (errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR)) && try < 64 {
			continue
		}
		return fd, err
	}
}

// place opens the place of a path below the container's root: a directory or a
// file, made where it is missing, with the directories above it.
func place(root int, name string, dir bool) (int, error) {
	name = path.Clean("/" + name)
	for range maxLinks {
		fd, err := lookup(root, name)
		if err == nil {
			if err := sameKind(fd, name, dir); err != nil {
				unix.Close(fd)
				return -1, err
			}
			return fd, nil
		}
		if !errors.Is(err, unix.ENOENT) || name == "/" {
			return -1, fmt.Errorf("find %q in the container: %w", name, err)
		}
		to, err := makeIn(root, name, func(parent int, base string) error {
			if dir {
				return unix.Mkdirat(parent, base, 0o755)
			}
			return unix.Mknodat(parent, base, unix.S_IFREG|0o644, 0)
		})
		if err != nil {
			return -1, err
		}
		name = to
	}
	return -1, fmt.Errorf("find %q in the container: %w", name, unix.ELOOP)
}

// makeIn makes something at a path where there is nothing. Where there is a symlink
// to nothing, the path that it points at is the answer, else the path itself.
func makeIn(root int, name string, do func(parent int, base string) error) (string, error) {
	parent, err := place(root, path.Dir(name), true)
	if err != nil {
		return "", err
	}
	defer unix.Close(parent)
	base := path.Base(name)
	var st unix.Stat_t
	if err := unix.Fstat(parent, &st); err != nil {
		return "", fmt.Errorf("make %q in the container: %w", name, err)
	}
	err = do(parent, base)
	if errors.Is(err, unix.EOVERFLOW) {
		// The file system belongs to a user namespace that has no name for the host's
		// root.
		err = as(st.Uid, st.Gid, func() error { return do(parent, base) })
	}
	if errors.Is(err, unix.EEXIST) {
		buf := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(parent, base, buf)
		if err != nil {
			return name, nil // it appeared meanwhile
		}
		to := string(buf[:n])
		if !path.IsAbs(to) {
			to = path.Join(path.Dir(name), to)
		}
		return path.Clean(to), nil
	}
	if errors.Is(err, unix.EROFS) {
		return "", fmt.Errorf("make %q in the container: its file system is read-only; have it in the image: %w", name, err)
	}
	if err != nil {
		return "", fmt.Errorf("make %q in the container: %w", name, err)
	}
	// It belongs to whom its directory belongs to: in a user namespace that is the
	// container's root and not the host's.
	if st.Uid != 0 || st.Gid != 0 {
		if err := unix.Fchownat(parent, base, int(st.Uid), int(st.Gid), unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return "", fmt.Errorf("make %q in the container: %w", name, err)
		}
	}
	return name, nil
}

// as calls f with another owner for what this thread makes.
func as(uid, gid uint32, f func() error) error {
	// That of a thread: both tell what was before, and fail silently.
	oldGID, err := unix.SetfsgidRetGid(int(gid))
	if err != nil {
		return err
	}
	oldUID, err := unix.SetfsuidRetUid(int(uid))
	if err != nil {
		return err
	}
	defer func() {
		_, _ = unix.SetfsuidRetUid(oldUID)
		_, _ = unix.SetfsgidRetGid(oldGID)
	}()
	return f()
}

// sameKind sees to it that a directory is mounted on a directory, and anything else
// on anything else.
func sameKind(fd int, name string, dir bool) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR; isDir != dir {
		want := "directory"
		if !dir {
			want = "file"
		}
		return fmt.Errorf("the container has a %s at %q, want a %s there: %w", hostfs.TypeName(st.Mode), name, want, errdefs.ErrConflict)
	}
	return nil
}

// clean refuses a path of the container that is not absolute.
func clean(name string) (string, error) {
	if !path.IsAbs(name) || strings.IndexByte(name, 0) >= 0 || path.Clean(name) == "/" {
		return "", fmt.Errorf("found %q, want an absolute path below the container's root: %w", name, errdefs.ErrInvalidArgument)
	}
	return path.Clean(name), nil
}
