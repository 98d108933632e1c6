// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// maxNames bounds the spec files of one directory.
const maxNames = 1 << 18

// trusted tells whether files below a directory of this identity are believed at
// all; of others only the refusal is kept, which must go when the directory
// becomes trusted.
func (r *Registry) trusted(id dirIdentity) bool {
	_, rule := r.distrust("", "", id.mode, id.uid)
	return id.errno == 0 && rule == ""
}

// scan lists a directory and loads what is not known by its identity.
func (r *Registry) scan(b *batch, s *scan) {
	if s.dir == nil {
		return
	}
	defer s.dir.close()
	list, err := r.list(s.dir)
	if err != nil {
		s.err = err
		if s.again() {
			b.again = append(b.again, s.i)
		}
		return
	}
	s.names = make(map[string]struct{}, len(list))
	load := list[:0]
	for _, name := range list {
		s.names[name] = struct{}{}
		if e := s.known.file(s.i, name); e == nil || r.stale(s.dir, e) {
			load = append(load, name)
		}
	}
	for i, e := range r.loadAll(s.dir, load) {
		b.loaded = append(b.loaded, loaded{fileKey{s.i, load[i]}, e})
	}
}

// stale looks whether a known file has changed, without reading it.
func (r *Registry) stale(d *openDir, e *entry) bool {
	if e.check != checkNone || e.racy {
		return r.changed(e)
	}
	var st unix.Stat_t
	return fstatat(d.fd, e.key(), &st) != nil || identityOf(&st) != e.id
}

// list gives the names in a directory that are those of spec files.
func (r *Registry) list(d *openDir) ([]string, error) {
	fd, err := unix.Openat(d.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "list", Path: d.path, Err: err}
	}
	f := os.NewFile(uintptr(fd), d.path)
	defer f.Close()
	var out []string
	for {
		names, err := f.Readdirnames(4096)
		for _, n := range names {
			if slices.Contains(r.opts.Extensions, path.Ext(n)) {
				out = append(out, n)
			}
		}
		switch {
		case errors.Is(err, io.EOF) || err == nil && len(names) == 0:
			return out, nil
		case err != nil:
			return nil, err
		case len(out) > maxNames:
			return nil, fmt.Errorf("list %q: more than %d spec files: %w", d.path, maxNames, errdefs.ErrResourceExhausted)
		}
	}
}

// loadFiles loads the single files of a batch.
func (r *Registry) loadFiles(b *batch) {
	for i, d := range r.dirs {
		var names []string
		for k := range b.files {
			if k.dir == i {
				names = append(names, k.name)
			}
		}
		if len(names) == 0 {
			continue
		}
		dir, err := r.openDir(d)
		if err != nil {
			b.again = append(b.again, i) // it is another now, or descriptors are short
			continue
		}
		for j, e := range r.loadAll(dir, names) {
			b.loaded = append(b.loaded, loaded{fileKey{i, names[j]}, e})
		}
		dir.close()
	}
}
