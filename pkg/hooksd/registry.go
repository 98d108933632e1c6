// SPDX-License-Identifier: Apache-2.0

package hooksd

import (
	"cmp"
	"errors"
	"path"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/diag"
	"github.com/jackfield/jackfield/internal/trust"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

// Options change how a registry reads. The zero value is right on a node.
type Options struct {
	// TrustAnyone skips the checks of owners and modes, for a tree that is not in use.
	TrustAnyone bool
}

// Registry reads hooks.d directories. It is safe for concurrent use.
type Registry struct {
	files trust.Reader

	mu   sync.Mutex
	dirs []*directory
	cur  *Snapshot
}

// directory is a hooks.d directory as it was last read.
type directory struct {
	path  string
	fault *diag.Diagnostic
	files map[string]*hookFile
}

// Snapshot is the content of the directories at one moment. It must not be changed.
type Snapshot struct {
	// Hooks are in the order of injection. Hooks whose program cannot be run have Err.
	Hooks []*Hook
	// Problems are the faults of files and directories, in the order of their paths.
	Problems diag.List
}

// New creates a registry of directories, host paths in rising precedence: a file masks the file of the
// same name in an earlier directory. A directory may be created later. Nothing is read before the
// first Snapshot.
func New(host hostfs.Root, dirs []string, opts Options) *Registry {
	r := newRegistry(host, opts.TrustAnyone)
	for _, d := range dirs {
		r.dirs = append(r.dirs, &directory{path: path.Clean(d)})
	}
	return r
}

func newRegistry(host hostfs.Root, trustAnyone bool) *Registry {
	return &Registry{files: trust.Reader{Host: host, TrustAnyone: trustAnyone, What: "a hook file", MaxSize: MaxSize}}
}

// Snapshot returns the current content of the directories, and the same pointer while nothing changes. It reads each
// file: there are few, and reading one takes microseconds.
func (r *Registry) Snapshot() *Snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.dirs {
		r.readDirectory(d)
	}
	if s := r.assemble(); r.cur == nil || !reflect.DeepEqual(s, r.cur) {
		r.cur = s
	}
	return r.cur
}

// Hooks returns the hooks of a new Snapshot.
func (r *Registry) Hooks() []*Hook { return r.Snapshot().Hooks }

// readDirectory reads a directory with its files, and checks the files' programs on the host.
func (r *Registry) readDirectory(d *directory) {
	before := d.files
	d.files, d.fault = map[string]*hookFile{}, nil
	dir, err := r.files.Host.Open(d.path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		if !errdefs.IsNotFound(err) || errors.Is(err, unix.ENOTDIR) {
			d.fault = &diag.Diagnostic{File: d.path, Rule: "cannot read the directory: " + hostfs.Errno(err).Error(), Kind: errdefs.ErrUnavailable}
		}
		return
	}
	defer dir.Close()
	fd := int(dir.Fd())
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		d.fault = &diag.Diagnostic{File: d.path, Rule: "cannot inspect the directory: " + hostfs.Errno(err).Error(), Kind: errdefs.ErrUnavailable}
		return
	}
	if d.fault = r.files.Check("directory", d.path, &st); d.fault != nil {
		d.fault.File = d.path
		return
	}
	names, err := r.listHookFiles(d.path)
	if err != nil {
		d.fault = &diag.Diagnostic{File: d.path, Rule: diag.ErrorText(err), Kind: errdefs.ErrResourceExhausted}
	}
	for _, name := range names {
		e := r.loadFile(fd, path.Join(d.path, name), before[name])
		if e == nil {
			continue
		}
		d.files[name] = e
		if e.hook != nil {
			e.programFault = r.checkProgram(e)
		}
	}
}

// assemble creates a snapshot. For each name it takes the valid file of highest precedence, as Podman and
// CRI-O do. A file with an error masks no other.
func (r *Registry) assemble() *Snapshot {
	s := &Snapshot{}
	usable, broken := map[string]*Hook{}, map[string]*Hook{}
	for _, d := range r.dirs {
		if d.fault != nil {
			s.Problems = append(s.Problems, d.fault)
		}
		for name, e := range d.files {
			s.Problems = append(s.Problems, e.faults...)
			switch {
			case e.hook == nil:
			case e.programFault != nil:
				s.Problems = append(s.Problems, e.programFault)
				h := *e.hook
				h.Err = e.programFault
				broken[name] = &h
			default:
				usable[name] = e.hook
			}
		}
	}
	for _, h := range usable {
		s.Hooks = append(s.Hooks, h)
	}
	for name, h := range broken {
		if usable[name] == nil {
			s.Hooks = append(s.Hooks, h)
		}
	}
	slices.SortFunc(s.Hooks, func(a, b *Hook) int {
		return cmp.Or(strings.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name)), strings.Compare(a.Name, b.Name))
	})
	s.Problems.Sort()
	return s
}
