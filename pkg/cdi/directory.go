// SPDX-License-Identifier: Apache-2.0

package cdi

import "golang.org/x/sys/unix"

// maxNames bounds the names in one directory.
const maxNames = 1 << 18

// specDir is one spec directory and its files as last read.
type specDir struct {
	path     string
	priority int // index among the directories
	id       identity
	watch    int // ID in the queue, or noWatch
	// stale means that the directory must be listed: nothing was read yet, the watch ended, the queue overflowed, or
	// the directory could not be read.
	stale bool
	files map[string]*specFile // as last read, by name
	// recheck has the files that can change without an event of the directory.
	recheck map[string]*specFile
	changed map[string]bool // names of files that can have changed since the last load
}

const noWatch = -2 // not watch.AllDirs

func newSpecDir(dirPath string, priority int) *specDir {
	return &specDir{path: dirPath, priority: priority, watch: noWatch, stale: true,
		files: map[string]*specFile{}, recheck: map[string]*specFile{}, changed: map[string]bool{}}
}

// needsListing reports whether the events since the last listing do not suffice. id is the present identity of the
// path.
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
