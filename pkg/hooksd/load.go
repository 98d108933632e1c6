// SPDX-License-Identifier: Apache-2.0

package hooksd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// maxFiles bounds the hook files of one directory.
const maxFiles = 4096

// entry is one file as it was read last.
type entry struct {
	file, real string // host paths: its own, and where the content lies
	link       bool
	id, dirID  identity // of what was read, and of the directory of real
	volatile   bool     // it can change without an announcement of the directory
	again      bool     // what kept it from being read may pass
	hook       *Hook    // nil when it is in error
	problems   []*Problem
	program    *Problem // why the hook's program cannot be run
}

// identity tells a file or directory from another, and from itself before a
// change.
type identity struct {
	dev, ino, nlink uint64
	mode, uid       uint32
	size            int64
	mtime, ctime    unix.Timespec
	errno           unix.Errno
}

func identify(st unix.Stat_t, err error) identity {
	if err != nil {
		return identity{errno: errnoOf(err)}
	}
	id := identity{dev: st.Dev, ino: st.Ino, mode: st.Mode, uid: st.Uid}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		id.nlink, id.size, id.mtime, id.ctime = uint64(st.Nlink), st.Size, st.Mtim, st.Ctim
	}
	return id
}

func errnoOf(err error) unix.Errno {
	var no unix.Errno
	if errors.As(err, &no) {
		return no
	}
	return unix.EIO
}

// list gives the names of hook files, sorted.
func list(dir *os.File) ([]string, error) {
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

// same reports that the file of this name is the one that was read.
func (r *Registry) same(dirfd int, name string, e *entry) bool {
	if e.volatile || e.again {
		return !e.again && !r.changed(e)
	}
	var st unix.Stat_t
	err := unix.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return identify(st, err) == e.id
}

// changed looks whether what a volatile entry stands for is another now.
func (r *Registry) changed(e *entry) bool {
	return e.again || identify(r.host.Stat(e.file)) != e.id || e.dirID != (identity{}) && identify(r.host.Stat(path.Dir(e.real))) != e.dirID
}

// load reads one file; nil means that there is none. One that the real parser
// passes over without a word, a symlink to nothing, is passed over here.
func (r *Registry) load(dirfd int, dir, name string) *entry {
	e := &entry{file: path.Join(dir, name)}
	e.real = e.file
	var st unix.Stat_t
	if err := unix.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		return e.fail("look at it", err)
	}
	e.id = identify(st, nil)
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		if !r.follow(e) {
			return e
		}
	} else if !e.regular(&st) {
		return e
	}
	f, err := r.host.Open(e.real, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NOCTTY)
	if err != nil {
		return e.fail("open it", err)
	}
	defer f.Close()
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return e.fail("look at it", err)
	}
	e.id = identify(st, nil)
	e.volatile = e.link || st.Nlink > 1
	if !e.regular(&st) {
		return e
	}
	if p := r.distrust("file", e.real, &st); p != nil {
		e.problems = append(e.problems, p.at(e.file))
		return e
	}
	data, err := hostfs.ReadRegular(f, MaxSize)
	if err != nil {
		if errdefs.IsInvalidArgument(err) {
			e.problems = append(e.problems, &Problem{File: e.file, Rule: err.Error()})
			return e
		}
		return e.fail("read it", err)
	}
	e.hook, e.problems = Parse(data, e.file)
	return e
}

// follow finds what a symlink leads to, inside the host root. The link is in a
// directory that is trusted; what it leads to must be in one too.
func (r *Registry) follow(e *entry) bool {
	e.link, e.volatile = true, true
	st, err := r.host.Stat(e.file)
	e.id = identify(st, err)
	if err == nil {
		if !e.regular(&st) {
			return false
		}
		e.real, err = r.host.Resolve(e.file)
	}
	if err != nil {
		if !errdefs.IsNotFound(err) {
			e.problems = append(e.problems, &Problem{File: e.file, Rule: "cannot follow the symlink: " + errnoOf(err).Error(), cause: errdefs.ErrPermissionDenied})
		}
		return false
	}
	dir, err := r.host.Stat(path.Dir(e.real))
	e.dirID = identify(dir, err)
	if err != nil {
		e.fail("follow the symlink", err)
		return false
	}
	if p := r.distrust("directory", path.Dir(e.real), &dir); p != nil {
		e.problems = append(e.problems, p.at(e.file))
		return false
	}
	return true
}

// at puts a problem of what a file leads to down to the file.
func (p *Problem) at(file string) *Problem {
	if p.File != file {
		p.Found += " " + quote(p.File)
		p.File = file
	}
	return p
}

// regular refuses whatever is not a regular file.
func (e *entry) regular(st *unix.Stat_t) bool {
	if st.Mode&unix.S_IFMT == unix.S_IFREG {
		return true
	}
	e.problems = append(e.problems, &Problem{File: e.file, Found: "a " + hostfs.TypeName(st.Mode), Rule: "a hook file must be a regular file"})
	return false
}

// fail records an error of the system, which may pass by itself.
func (e *entry) fail(doing string, err error) *entry {
	e.again, e.volatile = true, true
	e.problems = append(e.problems, &Problem{File: e.file, Rule: "cannot " + doing + ": " + errnoOf(err).Error(), cause: errdefs.ErrUnavailable})
	return e
}

// program is why a hook's program cannot be run on the host; nil when it can.
func (r *Registry) program(e *entry) *Problem {
	p := &Problem{File: e.file, Field: "hook.path", Found: quote(e.hook.Path), cause: errdefs.ErrFailedPrecondition}
	st, err := r.host.Stat(e.hook.Path)
	switch {
	case errdefs.IsNotFound(err):
		p.Rule, p.cause = "there is no such file on this host; install the program, or remove the hook file", errdefs.ErrNotFound
	case err != nil:
		p.Rule, p.cause = "cannot look at it on this host: "+errnoOf(err).Error(), errdefs.ErrUnavailable
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		p.Rule = "on this host it is a " + hostfs.TypeName(st.Mode) + ", not a program"
	case st.Mode&0o111 == 0:
		p.Rule = fmt.Sprintf("it has mode %04o on this host and cannot be executed; run `chmod +x %s`", st.Mode&0o7777, e.hook.Path)
	default:
		d := r.distrust("program", e.hook.Path, &st)
		if d != nil {
			p.Found, p.Rule, p.cause = d.Found+" "+p.Found, d.Rule, d.cause
			return p
		}
		if d = r.distrustDirectories(e.hook.Path); d == nil {
			return nil
		}
		p.Found, p.Rule, p.cause = p.Found+" through "+d.Found+" "+quote(d.File), d.Rule, d.cause
	}
	return p
}

// maxLinks bounds the symlinks on the way to a program, as the kernel does.
const maxLinks = 40

// distrustDirectories checks each directory that a path goes through, those of its
// symlinks too: who can write one can put another file in the place of this one. A
// sticky bit does not help, since the file may be missing for a moment.
func (r *Registry) distrustDirectories(file string) *Problem {
	if r.opts.TrustAnyone {
		return nil
	}
	fail := func(at string, err error) *Problem {
		return &Problem{File: at, Found: "what cannot be inspected,", Rule: errnoOf(err).Error(), cause: errdefs.ErrUnavailable}
	}
	dir, rest, links := "/", strings.Split(file, "/"), 0
	st, err := r.host.Lstat(dir)
	for {
		if err != nil {
			return fail(dir, err)
		}
		if p := r.distrust("directory", dir, &st); p != nil {
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
