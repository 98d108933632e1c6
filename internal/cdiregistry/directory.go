// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/host/watch"
)

// maxNames bounds the names in one directory.
const maxNames = 1 << 18

// specDir is one spec directory and what the registry knows of it. The registry's lock
// guards it.
type specDir struct {
	path     string
	priority int // index among the directories
	id       identity
	watch    int // ID in the queue, or noWatch
	// stale means that the directory must be listed: nothing was read yet, the watch ended, the
	// queue overflowed, or the directory could not be read.
	stale bool
	files map[string]*specFile // as last read, by name
	// recheck are those of files that events do not cover.
	recheck map[string]*specFile
	changed map[string]bool // names that may have changed since the last load
}

const noWatch = -2 // not watch.AllDirs

// needsListing reports whether events since the last listing do not suffice, where the path
// leads to id now.
func (d *specDir) needsListing(id identity) bool {
	return d.stale || d.id != id || d.watch == noWatch && id.errno == 0
}

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

// openAndWatch opens a directory and watches it. The caller lists it afterwards, so that no
// change falls between the listing and the first event.
func (r *Registry) openAndWatch(d *specDir) (*openDir, error) {
	before := d.watch
	d.watch, d.stale = noWatch, false
	dir, err := r.openDir(d)
	switch {
	case hostfs.Errno(err) == unix.ENOENT:
		d.id = identity{errno: unix.ENOENT}
	case err != nil:
		d.id = identify(r.host.Stat(d.path))
	default:
		d.id = identify(dir.st, nil)
		if !r.opts.DisableWatch {
			if id, err := r.watch.Add(dir.fd, watch.Contents); err == nil {
				d.watch = id
			}
		}
	}
	// Two paths to one inode share a watch.
	if before != noWatch && !slices.ContainsFunc(r.dirs, func(d *specDir) bool { return d.watch == before }) {
		r.watch.Remove(before)
	}
	return dir, err
}

// listSpecNames returns the names in a directory that have the extension of a spec file, sorted.
func (r *Registry) listSpecNames(d *specDir) ([]string, error) {
	names, err := r.host.ReadDir(d.path, maxNames)
	names = slices.DeleteFunc(names, func(name string) bool { return !r.isSpecName(name) })
	return slices.Compact(names), err // a name that is renamed meanwhile may come twice
}
