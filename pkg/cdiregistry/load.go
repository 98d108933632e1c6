// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"errors"
	"fmt"
	"os"
	"path"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/trust"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

// loadAll loads files of a directory, on several processors. A nil file means that there is
// none of the name.
func (r *Registry) loadAll(d *openDir, names []string) []*specFile {
	files := make([]*specFile, len(names))
	var next atomic.Int64
	work := func() {
		for i := int(next.Add(1)) - 1; i < len(names); i = int(next.Add(1)) - 1 {
			files[i] = r.loadFile(d, names[i], parseSpec)
		}
	}
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(names)/16+1) - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
	return files
}

// loadFile reads one file; nil means that there is no spec file of that name.
func (r *Registry) loadFile(d *openDir, name string, parse func(text string) *parsedSpec) *specFile {
	now := time.Now()
	f := &specFile{dir: d.specDir, name: name}
	var st unix.Stat_t
	if err := unix.Fstatat(d.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		return f.failSystemCall("stat it", err)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return nil
	}
	f.id = identify(st, nil)
	if d := r.checkOwnership("directory", d.path, &d.st); d != nil {
		return f.refuse(errdefs.ErrPermissionDenied, d)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return r.loadSymlink(f, now, parse)
	}
	if !f.isRegular(&st) {
		return f
	}
	fd, err := hostfs.OpenatBeneath(d.fd, name, unix.O_RDONLY|unix.O_NOCTTY)
	if err != nil {
		if errdefs.IsNotFound(err) {
			return nil
		}
		return f.failSystemCall("open it", err)
	}
	file := os.NewFile(uintptr(fd), name)
	defer file.Close()
	return r.loadOpened(f, file, f.hostPath(), now, parse)
}

// loadSymlink reads the file that a symlink leads to. The symlink is in a trusted directory;
// its target must be in one too.
func (r *Registry) loadSymlink(f *specFile, now time.Time, parse func(text string) *parsedSpec) *specFile {
	link := f.hostPath()
	f.revalidate = revalidateStat
	st, err := r.host.Stat(link)
	f.id = identify(st, err)
	if err != nil {
		return f.failSystemCall("follow the symlink", err)
	}
	if !f.isRegular(&st) {
		return f
	}
	target, err := r.host.Resolve(link)
	if err != nil {
		return f.failSystemCall("follow the symlink", err)
	}
	dir, err := r.host.Stat(path.Dir(target))
	if err != nil {
		return f.failSystemCall("follow the symlink", err)
	}
	f.target = &targetDir{path: path.Dir(target), id: identify(dir, nil)}
	if d := r.checkOwnership("directory", f.target.path, &dir); d != nil {
		return f.refuse(errdefs.ErrPermissionDenied, d)
	}
	file, err := r.host.Open(target, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NOCTTY)
	if err != nil {
		return f.failSystemCall("open it", err)
	}
	defer file.Close()
	return r.loadOpened(f, file, target, now, parse)
}

// loadOpened reads and checks an open file, whose path without symlinks is real. It returns nil for a
// file that declares none of the names of SnapshotOf.
func (r *Registry) loadOpened(f *specFile, file *os.File, real string, now time.Time, parse func(text string) *parsedSpec) *specFile {
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return f.failSystemCall("stat it", err)
	}
	f.id = identify(st, nil)
	f.mtimeTooRecent = f.id.isTooRecent(now)
	if st.Nlink > 1 {
		f.revalidate = max(f.revalidate, revalidateStat)
	}
	if !f.isRegular(&st) {
		return f
	}
	if d := r.checkOwnership("file", real, &st); d != nil {
		return f.refuse(errdefs.ErrPermissionDenied, d)
	}
	rule := fmt.Sprintf("must have at most %d bytes", DefaultMaxFileSize)
	if st.Size > DefaultMaxFileSize {
		return f.refuse(nil, &Diagnostic{Found: fmt.Sprintf("%d bytes", st.Size), Rule: rule})
	}
	text, err := hostfs.ReadRegular(file, DefaultMaxFileSize)
	switch {
	case errdefs.IsInvalidArgument(err):
		return f.refuse(nil, &Diagnostic{Found: fmt.Sprintf("more than %d bytes", DefaultMaxFileSize), Rule: rule})
	case err != nil:
		return f.failSystemCall("read it", err)
	case int64(len(text)) != st.Size: // it is being written
		f.revalidate = revalidateReload
	}
	if r.names != nil && !mayDeclare(string(text), r.names) {
		return nil
	}
	p := parse(string(text))
	if len(p.faults) > 0 {
		f.refuse(nil, p.faults...)
		f.rememberNames(p.kind, p.names)
		return f
	}
	f.spec, f.kind = p.spec, p.kind
	return f
}

// rememberNames keeps what a refused file would have declared, for messages: few names, since
// the text may be anything.
func (f *specFile) rememberNames(kind string, names []string) {
	if checkKind(kind) != nil {
		return
	}
	f.kind = kind
	for _, name := range names {
		if len(f.refused) == 64 {
			break
		}
		if len(name) <= 256 && checkName(name) == nil {
			f.refused = append(f.refused, name)
		}
	}
}

// isRegular refuses what is not a regular file.
func (f *specFile) isRegular(st *unix.Stat_t) bool {
	if st.Mode&unix.S_IFMT == unix.S_IFREG {
		return true
	}
	f.refuse(nil, &Diagnostic{Found: "a " + hostfs.TypeName(st.Mode), Rule: "a spec file must be a regular file"})
	return false
}

// refuse records what is wrong with the file; kind is as [SpecError.Err].
func (f *specFile) refuse(kind error, faults ...*Diagnostic) *specFile {
	f.err = &SpecError{Path: f.hostPath(), Err: kind, Diagnostics: faults}
	return f
}

// failSystemCall records an error of the system. The next lookup tries again where the reason may pass.
func (f *specFile) failSystemCall(doing string, err error) *specFile {
	no := hostfs.Errno(err)
	kind := error(errdefs.ErrUnavailable)
	switch {
	case no == unix.ENOENT || no == unix.ENOTDIR:
		kind = errdefs.ErrNotFound
	case errors.Is(err, errdefs.ErrPermissionDenied), no == unix.EACCES, no == unix.EPERM, no == unix.ELOOP:
		kind = errdefs.ErrPermissionDenied
	case no == unix.ENXIO || no == unix.ENAMETOOLONG:
		kind = errdefs.ErrInvalidArgument
	default:
		f.revalidate = revalidateReload
	}
	return f.refuse(kind, &Diagnostic{Rule: "cannot " + doing + ": " + no.Error()})
}

// checkOwnership returns why a file or directory is not trusted, or nil. A user who can write a
// spec file can have anything mounted and run as root in a container, so only root and the
// process's own user may.
func (r *Registry) checkOwnership(what, path string, st *unix.Stat_t) *Diagnostic {
	if r.opts.TrustAnyone {
		return nil
	}
	e := trust.Check(path, st, trust.Options{UnmappedOwner: true})
	if e == nil {
		return nil
	}
	return &Diagnostic{Found: fmt.Sprintf("%s %q, %s", what, path, e.Found), Rule: e.Rule, Hint: e.Remedy}
}

// isTrustedDirectory reports whether files in a directory of this identity may be trusted. What
// is known of files in other directories is only that they were refused.
func (r *Registry) isTrustedDirectory(id identity) bool {
	return id.errno == 0 && r.checkOwnership("", "", &unix.Stat_t{Mode: id.mode, Uid: id.uid, Gid: id.gid}) == nil
}
