// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"fmt"
	"path"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// maxLinks bounds the symlinks in a path, with the kernel's limit.
const maxLinks = 40

// CheckProgram returns the reason why root must not execute a program, because another user can
// replace or change it; or nil.
func CheckProgram(host hostfs.Root, file string) error {
	st, err := host.Stat(file)
	if err != nil {
		return fmt.Errorf("inspect program %q: %w", file, hostfs.WithoutPath(err))
	}
	if fault := Check(file, &st, Options{UnmappedOwner: true}); fault != nil {
		return fault
	}
	return CheckParents(host, file, parents)
}

// CheckParents checks each directory on a program's path, including the paths of symlinks. A user
// who can write one of them can replace the program. The error is an *Error, or the reason why a
// directory cannot be inspected.
func CheckParents(host hostfs.Root, file string, opts Options) error {
	at, rest, links := "/", strings.Split(file, "/"), 0
	for {
		st, err := host.Lstat(at)
		if err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
			var target string
			if target, err = host.Readlink(at); err == nil {
				if at = path.Dir(at); path.IsAbs(target) {
					at = "/"
				}
				rest = append(strings.Split(target, "/"), rest...)
				if links++; links <= maxLinks {
					continue
				}
				err = errdefs.ErrInvalidArgument.WithMessage("too many symlinks")
			}
		}
		if err != nil {
			return fmt.Errorf("inspect %q: %w", at, hostfs.WithoutPath(err))
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			return nil // the file itself
		}
		if fault := Check(at, &st, opts); fault != nil {
			return fault
		}
		if len(rest) == 0 {
			return nil
		}
		at, rest = path.Join(at, rest[0]), rest[1:]
	}
}
