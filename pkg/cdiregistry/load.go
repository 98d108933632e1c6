// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"errors"
	"fmt"
	"path"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// openDir is a directory while files in it are loaded.
type openDir struct {
	*specDir
	fd int // O_PATH
	st unix.Stat_t
}

func (d *openDir) close() { unix.Close(d.fd) }

func (r *Registry) openDir(d *specDir) (*openDir, error) {
	fd, err := r.host.OpenFD(d.path, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	o := &openDir{specDir: d, fd: fd}
	if err := unix.Fstat(o.fd, &o.st); err != nil {
		o.close()
		return nil, err
	}
	return o, nil
}

// loader reads and checks files. It is used by one goroutine at a time and rests
// in a pool.
type loader struct {
	checker
	buf []byte
}

// load reads one file; nil means that there is no spec file of that name.
func (r *Registry) load(l *loader, d *openDir, name string) *entry {
	now := time.Now()
	e := &entry{dir: d.specDir, piece: piece{all: d.join(name)}}
	var st unix.Stat_t
	if err := fstatat(d.fd, name, &st); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		return e.fail("look at it", err)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return nil
	}
	e.id = identityOf(&st)
	if err := r.distrustFile(e, "directory", d.path, &d.st); err != nil {
		return e.refuse(err)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return r.loadLink(l, e, now)
	}
	if !e.regular(&st) {
		return e
	}
	fd, err := openat(d.fd, name)
	if err != nil {
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		return e.fail("open it", err)
	}
	defer unix.Close(fd)
	return r.loadFrom(l, e, fd, e.path(), now)
}

// loadLink reads what a symlink leads to. The link is in a directory that is
// trusted; what it leads to must be in one too.
func (r *Registry) loadLink(l *loader, e *entry, now time.Time) *entry {
	link := e.path()
	e.check = checkStat
	st, err := r.host.Stat(link)
	if err != nil {
		e.id = identity{errno: errnoOf(err)}
		return e.fail("follow the symlink", err)
	}
	e.id = identityOf(&st)
	if !e.regular(&st) {
		return e
	}
	target, err := r.host.Resolve(link)
	if err != nil {
		return e.fail("follow the symlink", err)
	}
	dir, err := r.host.Stat(path.Dir(target))
	if err != nil {
		return e.fail("follow the symlink", err)
	}
	e.target = &targetDir{path: path.Dir(target), id: dirIdentityOf(&dir)}
	if err := r.distrustFile(e, "directory", e.target.path, &dir); err != nil {
		return e.refuse(err)
	}
	f, err := r.host.Open(target, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NOCTTY)
	if err != nil {
		return e.fail("open it", err)
	}
	defer f.Close()
	return r.loadFrom(l, e, int(f.Fd()), target, now)
}

// loadFrom reads and checks the open file fd, which lies at real.
func (r *Registry) loadFrom(l *loader, e *entry, fd int, real string, now time.Time) *entry {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return e.fail("look at it", err)
	}
	e.id = identityOf(&st)
	e.racy = e.id.racyAt(now)
	if st.Nlink > 1 {
		e.check = max(e.check, checkStat)
	}
	if !e.regular(&st) {
		return e
	}
	if err := r.distrustFile(e, "file", real, &st); err != nil {
		return e.refuse(err)
	}
	if st.Size > r.opts.MaxFileSize {
		return e.wrong(Diagnostic{Found: fmt.Sprintf("%d bytes", st.Size), Rule: fmt.Sprintf("at most %d are read", r.opts.MaxFileSize)})
	}
	n, err := l.read(fd, int(st.Size))
	if err != nil {
		return e.fail("read it", err)
	}
	if int64(n) != st.Size {
		e.check = checkReload // it changed under our hands
	}
	if int64(n) > r.opts.MaxFileSize {
		return e.wrong(Diagnostic{Found: fmt.Sprintf("more than %d bytes", r.opts.MaxFileSize), Rule: fmt.Sprintf("at most %d are read", r.opts.MaxFileSize)})
	}
	if l.w.words = e.dir.words.table.Load(); l.w.words != nil {
		l.w.file = l.w.words.file(e.path())
	}
	e.piece = l.parse(string(l.buf[:n]), e.path())
	if len(l.diags) > 0 {
		e.wrong(l.diags...)
		e.err.remember(l.kind, l.names)
	}
	return e
}

// remember keeps what a refused file would have declared, for messages: copies, so
// that the text goes, and no more than a few, as the text may be anything.
func (r *refusal) remember(kind string, names []string) {
	if checkKind(kind) != nil {
		return
	}
	r.kind = strings.Clone(kind)
	for _, name := range names {
		if len(r.names) == 64 {
			break
		}
		if len(name) <= 256 && checkName(name) == nil {
			r.names = append(r.names, strings.Clone(name))
		}
	}
}

// read fills the buffer with the file and gives the length. One byte more than
// the size is asked for, so that a file that has grown is seen.
func (l *loader) read(fd, size int) (int, error) {
	if cap(l.buf) < size+1 {
		l.buf = make([]byte, size+512)
	}
	l.buf = l.buf[:cap(l.buf)]
	n := 0
	for n <= size {
		k, err := unix.Read(fd, l.buf[n:size+1])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if k == 0 {
			break
		}
		// A regular file gives all it has at once.
		if n += k; n == size {
			break
		}
	}
	return n, nil
}

// regular refuses whatever is not a regular file.
func (e *entry) regular(st *unix.Stat_t) bool {
	if st.Mode&unix.S_IFMT == unix.S_IFREG {
		return true
	}
	e.wrong(Diagnostic{Found: "a " + hostfs.TypeName(st.Mode), Rule: "a spec file must be a regular file"})
	return false
}

func (e *entry) refuse(err *SpecError) *entry {
	e.err = &refusal{SpecError: *err}
	return e
}

// wrong refuses what is in the file.
func (e *entry) wrong(d ...Diagnostic) *entry {
	return e.refuse(&SpecError{Path: e.path(), Diagnostics: d})
}

// fail records an error of the system. What may pass by itself is tried again.
func (e *entry) fail(doing string, err error) *entry {
	no := errnoOf(err)
	var sentinel error = errdefs.ErrUnavailable
	switch {
	case no == unix.ENOENT || no == unix.ENOTDIR:
		sentinel = errdefs.ErrNotFound
	case errors.Is(err, errdefs.ErrPermissionDenied), no == unix.EACCES, no == unix.EPERM, no == unix.ELOOP:
		sentinel = errdefs.ErrPermissionDenied
	case no == unix.ENXIO || no == unix.ENAMETOOLONG:
		sentinel = errdefs.ErrInvalidArgument
	default:
		e.check = checkReload
	}
	return e.refuse(&SpecError{Path: e.path(), Err: sentinel, Diagnostics: []Diagnostic{{Rule: "cannot " + doing + ": " + no.Error()}}})
}

func refusedTrust(file, found, rule string) *SpecError {
	return &SpecError{Path: file, Err: errdefs.ErrPermissionDenied, Diagnostics: []Diagnostic{{Found: found, Rule: rule}}}
}

// loadAll loads names in d, on several processors when that pays.
func (r *Registry) loadAll(d *openDir, names []string) []*entry {
	if !r.opts.DisableWatch { // else what is loaded does not stay for long
		d.words.begin(len(names) + r.cur.Load().files)
	}
	out := make([]*entry, len(names))
	var next atomic.Int64
	work := func() {
		l := r.loaders.Get().(*loader)
		for {
			const chunk = 8
			end := int(next.Add(chunk))
			if end-chunk >= len(names) {
				break
			}
			for i := end - chunk; i < min(end, len(names)); i++ {
				out[i] = r.load(l, d, names[i])
			}
		}
		l.release()
		if len(l.buf) > 64<<10 {
			l = &loader{} // what one huge file needed is not kept for all the others
		}
		r.loaders.Put(l)
	}
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(names)/16+1) - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
	return out
}

func fstatat(dirfd int, name string, st *unix.Stat_t) error {
	for {
		err := unix.Fstatat(dirfd, name, st, unix.AT_SYMLINK_NOFOLLOW)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func openat(dirfd int, name string) (int, error) {
	for {
		fd, err := unix.Openat(dirfd, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}
