// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"errors"
	"fmt"
	"path"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// Reader reads files that control root's actions, from directories in which other programs place
// them: CDI spec files and hooks.d files.
type Reader struct {
	Host    hostfs.Root
	Options Options
	// TrustAnyone skips the checks of owners and modes, for files that are not in use.
	TrustAnyone bool
	// What describes a file in messages, such as "a spec file".
	What string
	// MaxSize is the maximum size of a file in bytes. TooLarge is the remedy for a larger one.
	MaxSize  int64
	TooLarge string
}

// File is a file of a directory, with the parts that could be read.
type File struct {
	Data   []byte
	IsLink bool
	// Target is the target of a symlink, and TargetDir the stat of the target's directory.
	Target    string
	TargetDir unix.Stat_t
}

// Check returns the reason why a file or directory is not trusted, or nil. what describes the file.
func (r *Reader) Check(what, path string, st *unix.Stat_t) *diag.Diagnostic {
	if r.TrustAnyone {
		return nil
	}
	e := Check(path, st, r.Options)
	if e == nil {
		return nil
	}
	return &diag.Diagnostic{Found: fmt.Sprintf("%s %q, %s", what, path, e.Found), Rule: e.Rule, Hint: e.Remedy,
		Kind: errdefs.ErrPermissionDenied}
}

// ReadFile reads a file of an open directory, which the caller has checked. file is its host path.
// A missing file is nil. The diagnostic is the reason why the file is rejected, without File.
func (r *Reader) ReadFile(dirfd int, file string) (*File, *diag.Diagnostic) {
	var st unix.Stat_t
	if err := unix.Fstatat(dirfd, path.Base(file), &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return nil, nil
		}
		return &File{}, systemFault("stat it", err)
	}
	f := &File{IsLink: st.Mode&unix.S_IFMT == unix.S_IFLNK}
	fault := r.checkType(&st)
	real := file
	if f.IsLink {
		fault = r.followLink(f, file)
		real = f.Target
	}
	if fault != nil {
		return f, fault
	}
	fd, err := r.openFile(dirfd, file, f.Target)
	switch {
	case errdefs.IsNotFound(err) && !f.IsLink:
		return nil, nil
	case err != nil:
		return f, systemFault("open it", err)
	}
	defer unix.Close(fd)
	if err := unix.Fstat(fd, &st); err != nil {
		return f, systemFault("stat it", err)
	}
	if fault := r.Check("file", real, &st); fault != nil {
		return f, fault
	}
	f.Data, err = hostfs.ReadRegular(fd, r.MaxSize)
	switch {
	case errdefs.IsInvalidArgument(err):
		return f, &diag.Diagnostic{Rule: diag.ErrorText(err), Hint: r.TooLarge}
	case err != nil:
		return f, systemFault("read it", err)
	}
	return f, nil
}

// checkType rejects everything that is not a regular file before it is opened, because opening a
// device can have effects.
func (r *Reader) checkType(st *unix.Stat_t) *diag.Diagnostic {
	if st.Mode&unix.S_IFMT == unix.S_IFREG {
		return nil
	}
	return &diag.Diagnostic{Found: "a " + hostfs.TypeName(st.Mode), Rule: r.What + " must be a regular file"}
}

// followLink finds the target of a symlink in a trusted directory. The target's directory must be
// trusted as well.
func (r *Reader) followLink(f *File, link string) *diag.Diagnostic {
	st, err := r.Host.Stat(link)
	if err != nil {
		return systemFault("follow the symlink", err)
	}
	if fault := r.checkType(&st); fault != nil {
		return fault
	}
	target, err := r.Host.Resolve(link)
	if err != nil {
		return systemFault("follow the symlink", err)
	}
	dir := path.Dir(target)
	if f.TargetDir, err = r.Host.Stat(dir); err != nil {
		return systemFault("follow the symlink", err)
	}
	f.Target = target
	// ReadFile checks the owner of the file itself, so another user cannot have put it into a
	// sticky directory.
	inSticky := *r
	inSticky.Options.Sticky = true
	return inSticky.Check("directory", dir, &f.TargetDir)
}

// openFile opens a file, or the target of a symlink. It follows no unchecked symlink.
func (r *Reader) openFile(dirfd int, file, target string) (int, error) {
	if target != "" {
		return r.Host.OpenFD(target, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NOCTTY)
	}
	return hostfs.OpenatBeneath(dirfd, path.Base(file), unix.O_RDONLY|unix.O_NOCTTY)
}

// systemFault reports an error of the system. Its Kind is errdefs.ErrUnavailable if the reason can
// be temporary.
func systemFault(doing string, err error) *diag.Diagnostic {
	d := &diag.Diagnostic{Rule: "cannot " + doing + ": " + diag.ErrorText(hostfs.WithoutPath(err)),
		Kind: errdefs.ErrUnavailable}
	for _, kind := range []error{errdefs.ErrNotFound, errdefs.ErrPermissionDenied, errdefs.ErrInvalidArgument} {
		if errors.Is(err, kind) {
			d.Kind = kind
		}
	}
	return d
}
