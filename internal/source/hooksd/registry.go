// SPDX-License-Identifier: Apache-2.0

package hooksd

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/host/trust"
)

// Options modify a registry. The zero value is meant for a live node.
type Options struct {
	// TrustAnyone skips the checks of owners and modes, for a tree that is not in use.
	TrustAnyone bool
}

// Registry reads hooks.d directories. It caches nothing and is safe for concurrent use.
type Registry struct {
	files trust.Reader
	dirs  []string
}

// Snapshot is the content of the directories at one moment. It must not be changed.
type Snapshot struct {
	// Hooks are in the order of injection. Err is set for a hook whose program cannot be run.
	Hooks []*Hook
	// Problems are the faults of files and directories, in the order of their paths.
	Problems diag.List
}

// New creates a registry of directories, host paths in ascending precedence: a file masks the file
// of the same name in an earlier directory. A directory can be created later. Nothing is read
// before the first Snapshot.
func New(host hostfs.Root, dirs []string, opts Options) *Registry {
	r := &Registry{files: trust.Reader{Host: host, TrustAnyone: opts.TrustAnyone, What: "a hook file",
		MaxSize: MaxSize}}
	for _, d := range dirs {
		r.dirs = append(r.dirs, path.Clean(d))
	}
	return r
}

// Hooks returns the hooks of a new Snapshot.
func (r *Registry) Hooks() []*Hook { return r.Snapshot().Hooks }

// Snapshot returns the current content of the directories. It reads each file, because there are
// few and one takes microseconds. Like in Podman and CRI-O, the valid file of highest precedence
// counts for each name. A file with an error masks no other.
func (r *Registry) Snapshot() *Snapshot {
	s := &Snapshot{}
	usable, broken := map[string]*Hook{}, map[string]*Hook{}
	for _, dir := range r.dirs {
		files, fault := r.readDirectory(dir)
		if fault != nil {
			s.Problems = append(s.Problems, fault)
		}
		for _, e := range files {
			s.Problems = append(s.Problems, e.faults...)
			if e.hook == nil {
				continue
			}
			if fault := r.checkProgram(e); fault != nil {
				s.Problems = append(s.Problems, fault)
				e.hook.Err = fault
				broken[e.hook.Name] = e.hook
				continue
			}
			usable[e.hook.Name] = e.hook
		}
	}
	maps.Copy(broken, usable)
	s.Hooks = slices.SortedFunc(maps.Values(broken), func(a, b *Hook) int {
		return cmp.Or(strings.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name)),
			strings.Compare(a.Name, b.Name))
	})
	s.Problems.Sort()
	return s
}

// readDirectory reads a directory with its files.
func (r *Registry) readDirectory(dir string) (files []*hookFile, fault *diag.Diagnostic) {
	f, err := r.files.Host.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		if !errdefs.IsNotFound(err) || errors.Is(err, unix.ENOTDIR) {
			fault = &diag.Diagnostic{File: dir, Rule: "cannot read the directory: " + hostfs.Errno(err).Error(),
				Kind: errdefs.ErrUnavailable}
		}
		return nil, fault
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, &diag.Diagnostic{File: dir, Rule: "cannot inspect the directory: " + hostfs.Errno(err).Error(),
			Kind: errdefs.ErrUnavailable}
	}
	if fault = r.files.Check("directory", dir, &st); fault != nil {
		fault.File = dir
		return nil, fault
	}
	names, err := r.listHookFiles(dir)
	if err != nil {
		fault = listFault(dir, err)
	}
	for _, name := range names {
		if e := r.loadFile(int(f.Fd()), path.Join(dir, name)); e != nil {
			files = append(files, e)
		}
	}
	return files, fault
}

// listFault returns the fault of a directory that cannot be listed.
func listFault(dir string, err error) *diag.Diagnostic {
	var kind error = errdefs.ErrUnavailable
	if errdefs.IsResourceExhausted(err) {
		kind = errdefs.ErrResourceExhausted
	}
	return &diag.Diagnostic{File: dir, Rule: diag.ErrorText(err), Kind: kind}
}

// ValidateFile reads one file, a host path, like a Registry of its directory, and returns its
// faults. With checkHost it also checks the hook's program on the host. The error is
// errdefs.ErrNotFound for a missing file, or concerns the directory.
func ValidateFile(host hostfs.Root, file string, opts Options, checkHost bool) (diag.List, error) {
	r := New(host, nil, opts)
	dir, err := host.Open(path.Dir(file), unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	e := r.loadFile(int(dir.Fd()), path.Clean(file))
	if e == nil {
		return nil, fmt.Errorf("read %q: %w", file, unix.ENOENT)
	}
	list := e.faults
	if e.hook != nil && checkHost {
		if d := r.checkProgram(e); d != nil {
			list = append(list, d)
		}
	}
	list.Sort()
	return list, nil
}
