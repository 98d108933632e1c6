// SPDX-License-Identifier: Apache-2.0

package hooksd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/diag"
	"github.com/jackfield/jackfield/internal/jsontree"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

// maxFiles bounds the hook files of one directory.
const maxFiles = 4096

// hookFile is one file as it was last read.
type hookFile struct {
	file, target string         // host paths: its own, and the end of its symlinks
	data         []byte         // content; nil if it was not read
	hook         *Hook          // nil if the file has an error
	pathNode     *jsontree.Node // place of the program's path in the file
	faults       diag.List
	programFault *diag.Diagnostic // why the program cannot be run
}

// listHookFiles returns the names of the hook files in a directory, sorted.
func listHookFiles(dir *os.File) ([]string, error) {
	var out []string
	for {
		names, err := dir.Readdirnames(1024)
		for _, name := range names {
			if strings.HasSuffix(name, ".json") {
				out = append(out, name)
			}
		}
		switch {
		case errors.Is(err, io.EOF) || err == nil && len(names) == 0:
			slices.Sort(out)
			return out, nil
		case err != nil:
			return nil, err
		case len(out) > maxFiles:
			return nil, fmt.Errorf("the directory has more than %d hook files: %w", maxFiles, errdefs.ErrResourceExhausted)
		}
	}
}

// loadFile reads one file. It returns nil if the file does not exist. Dangling symlinks are ignored, as
// Podman and CRI-O do. before is the file as it was last read, or nil: the same content is not parsed again.
func (r *Registry) loadFile(dirfd int, dir, name string, before *hookFile) *hookFile {
	e := &hookFile{file: path.Join(dir, name), target: path.Join(dir, name)}
	var st unix.Stat_t
	if err := unix.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		return e.addSystemError("inspect it", err)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		if !r.followLink(e) {
			return e
		}
	} else if !e.checkRegular(&st) {
		return e
	}
	f, err := r.host.Open(e.target, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NOCTTY)
	if err != nil {
		return e.addSystemError("open it", err)
	}
	defer f.Close()
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return e.addSystemError("inspect it", err)
	}
	if !e.checkRegular(&st) {
		return e
	}
	if p := r.checkOwnership("file", e.target, &st); p != nil {
		e.faults = append(e.faults, atFile(p, e.file))
		return e
	}
	data, err := hostfs.ReadRegular(f, MaxSize)
	if err != nil {
		if errdefs.IsInvalidArgument(err) {
			e.faults = append(e.faults, &diag.Diagnostic{File: e.file, Rule: diag.ErrorText(err)})
			return e
		}
		return e.addSystemError("read it", err)
	}
	if e.data = data; before != nil && before.data != nil && bytes.Equal(before.data, data) {
		e.hook, e.faults, e.pathNode = before.hook, before.faults, before.pathNode
	} else {
		e.hook, e.faults, e.pathNode = parseFile(data, e.file)
	}
	return e
}

// followLink resolves a symlink inside the host root. The link is in a trusted directory. Its target must
// be in one, too.
func (r *Registry) followLink(e *hookFile) bool {
	st, err := r.host.Stat(e.file)
	if err == nil {
		if !e.checkRegular(&st) {
			return false
		}
		e.target, err = r.host.Resolve(e.file)
	}
	if err != nil {
		if !errdefs.IsNotFound(err) {
			e.faults = append(e.faults, &diag.Diagnostic{File: e.file, Rule: "cannot follow the symlink: " + hostfs.Errno(err).Error(), Kind: errdefs.ErrPermissionDenied})
		}
		return false
	}
	dir, err := r.host.Stat(path.Dir(e.target))
	if err != nil {
		e.addSystemError("follow the symlink", err)
		return false
	}
	if p := r.checkOwnership("directory", path.Dir(e.target), &dir); p != nil {
		e.faults = append(e.faults, atFile(p, e.file))
		return false
	}
	return true
}

// atFile turns a fault of a hook file's target, or of its directory, into a fault of the hook file.
func atFile(d *diag.Diagnostic, file string) *diag.Diagnostic {
	if d.File != file {
		d.Found += " " + quote(d.File)
		d.File = file
	}
	return d
}

// checkRegular refuses everything but regular files.
func (e *hookFile) checkRegular(st *unix.Stat_t) bool {
	if st.Mode&unix.S_IFMT == unix.S_IFREG {
		return true
	}
	e.faults = append(e.faults, &diag.Diagnostic{File: e.file, Found: "a " + hostfs.TypeName(st.Mode), Rule: "a hook file must be a regular file"})
	return false
}

// addSystemError records a system error.
func (e *hookFile) addSystemError(doing string, err error) *hookFile {
	e.faults = append(e.faults, &diag.Diagnostic{File: e.file, Rule: "cannot " + doing + ": " + hostfs.Errno(err).Error(), Kind: errdefs.ErrUnavailable})
	return e
}

// checkProgram returns why a hook's program cannot be run on the host, or nil.
func (r *Registry) checkProgram(e *hookFile) *diag.Diagnostic {
	p := &diag.Diagnostic{File: e.file, Line: e.pathNode.Line, Column: e.pathNode.Column, Field: "hook.path", Found: quote(e.hook.Path), Kind: errdefs.ErrFailedPrecondition}
	st, err := r.host.Stat(e.hook.Path)
	switch {
	case errdefs.IsNotFound(err):
		p.Rule, p.Kind = "no such file on this host; install the program, or remove the hook file", errdefs.ErrNotFound
	case err != nil:
		p.Rule, p.Kind = "cannot inspect it on this host: "+hostfs.Errno(err).Error(), errdefs.ErrUnavailable
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		p.Rule = "on this host it is a " + hostfs.TypeName(st.Mode) + ", not a program"
	case st.Mode&0o111 == 0:
		p.Rule = fmt.Sprintf("it has mode %04o on this host and cannot be executed; run `chmod +x %s`", st.Mode&0o7777, e.hook.Path)
	default:
		d := r.checkOwnership("program", e.hook.Path, &st)
		if d != nil {
			p.Found, p.Rule, p.Kind = d.Found+" "+p.Found, d.Rule, d.Kind
			return p
		}
		if d = r.checkDirectories(e.hook.Path); d == nil {
			return nil
		}
		p.Found, p.Rule, p.Kind = p.Found+" through "+d.Found+" "+quote(d.File), d.Rule, d.Kind
	}
	return p
}

// maxLinks bounds the symlinks in a program's path, as the kernel does.
const maxLinks = 40

// checkDirectories checks each directory on a program's path, also those of its symlinks. A user who can
// write one can replace the program. A sticky bit does not help: the file may be missing for a
// moment, for example during an update.
func (r *Registry) checkDirectories(file string) *diag.Diagnostic {
	if r.opts.TrustAnyone {
		return nil
	}
	fail := func(at string, err error) *diag.Diagnostic {
		return &diag.Diagnostic{File: at, Found: "a path that cannot be inspected,", Rule: hostfs.Errno(err).Error(), Kind: errdefs.ErrUnavailable}
	}
	dir, rest, links := "/", strings.Split(file, "/"), 0
	st, err := r.host.Lstat(dir)
	for {
		if err != nil {
			return fail(dir, err)
		}
		if p := r.checkOwnership("directory", dir, &st); p != nil {
			return p
		}
		for len(rest) > 0 && (rest[0] == "" || rest[0] == ".") {
			rest = rest[1:]
		}
		if len(rest) == 0 {
			return nil
		}
		next := path.Join(dir, rest[0])
		rest = rest[1:]
		if st, err = r.host.Lstat(next); err != nil {
			return fail(next, err)
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFDIR:
			dir = next
		case unix.S_IFLNK:
			target, lerr := r.host.Readlink(next)
			if links++; lerr == nil && links > maxLinks {
				lerr = unix.ELOOP
			}
			if lerr != nil {
				return fail(next, lerr)
			}
			if path.IsAbs(target) {
				dir = "/"
			}
			rest = append(strings.Split(target, "/"), rest...)
			st, err = r.host.Lstat(dir)
		default:
			return nil // the file itself
		}
	}
}
