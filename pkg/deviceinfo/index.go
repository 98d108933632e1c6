// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/host/watch"
)

// maxIndexNames bounds the file names that an [Index] keeps in memory, in about 15 MB. A larger directory is listed by each
// lookup, which is slower.
const maxIndexNames = 1 << 16

// Index returns what [CNIDir.ReadSandbox] returns. For the sandbox IDs of containerd and CRI-O
// (see [SplitCNIFileName]) its cost does not depend on the number of files of other sandboxes.
// Multus does not always remove these files, so a directory can hold thousands.
//
// An Index keeps the file names in memory and watches the directory by inotify. Each lookup
// drains the events first. The kernel queues an event before the system call that caused it
// returns, so a lookup sees every file that existed when it began. The directory is listed
// again after lost events, and when the path leads to another directory. A lookup lists the
// directory itself for other sandbox IDs, and without inotify.
//
// An Index runs no goroutine. It is safe for concurrent use.
type Index struct {
	host     hostfs.Root
	dir      string
	maxNames int
	closed   atomic.Bool

	mu    sync.Mutex
	queue watch.Queue
	names map[string][]string // those that SplitCNIFileName can split, by sandbox ID; nil if none are kept
	// dirID identifies the directory of which queue has the events and names the names.
	dirID   hostfs.FileID
	watchID int // of the directory in queue

	reloads int // number of listings, for tests
}

// NewIndex returns an index of dir, which is not read yet and need not exist. Close closes
// the descriptor that lookups open.
func NewIndex(dir CNIDir) (*Index, error) {
	host, err := openRoot(dir.Root)
	if err != nil {
		return nil, err
	}
	clean, err := cleanDir(dir.Dir, DefaultCNIDir)
	if err != nil {
		return nil, err
	}
	return &Index{host: host, dir: clean, maxNames: maxIndexNames}, nil
}

// Close closes the inotify descriptor. Later lookups fail. A second call is no error.
func (ix *Index) Close() error {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.closed.Store(true)
	ix.forgetNames()
	return ix.queue.Close()
}

// Lookup reads the files of one sandbox, as [CNIDir.ReadSandbox] does.
func (ix *Index) Lookup(sandboxID string) ([]Entry, error) {
	if names, known := ix.knownNames(sandboxID); known && len(names) == 0 {
		return nil, nil
	}
	d, err := ix.openDir(sandboxID)
	if err != nil {
		return nil, hostfs.IgnoreNotFound(err)
	}
	defer d.Close()
	names, err := ix.findNames(d, sandboxID)
	return d.readSandbox(sandboxID, names, err), nil
}

// HasSandbox reports whether the sandbox has any file, without opening one.
func (ix *Index) HasSandbox(sandboxID string) (bool, error) {
	if names, known := ix.knownNames(sandboxID); known {
		return len(names) > 0, nil
	}
	d, err := ix.openDir(sandboxID)
	if err != nil {
		return false, hostfs.IgnoreNotFound(err)
	}
	defer d.Close()
	names, err := ix.findNames(d, sandboxID)
	return len(names) > 0, err
}

func (ix *Index) openDir(sandboxID string) (*directory, error) {
	if ix.closed.Load() {
		return nil, fmt.Errorf("look up sandbox %q: the index of %q is closed: %w", sandboxID, ix.dir, errdefs.ErrFailedPrecondition)
	}
	return openSandboxDir(ix.host, ix.dir, sandboxID)
}

// knownNames returns the names of a sandbox's files if the index has them, without opening the directory: most
// containers of a node have none.
func (ix *Index) knownNames(sandboxID string) (names []string, known bool) {
	if !isHexID(sandboxID) {
		return nil, false
	}
	st, err := ix.host.Stat(ix.dir)
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if err != nil || ix.closed.Load() || !ix.isCurrent(&st) {
		return nil, false
	}
	return ix.names[sandboxID], true
}

// findNames returns the names of a sandbox's files in the directory, sorted. After an error it returns
// those found before.
func (ix *Index) findNames(d *directory, sandboxID string) ([]string, error) {
	var st unix.Stat_t
	if isHexID(sandboxID) && unix.Fstat(d.fd(), &st) == nil {
		ix.mu.Lock()
		defer ix.mu.Unlock()
		if ix.isCurrent(&st) || ix.loadNames(d, &st) {
			return slices.Sorted(slices.Values(ix.names[sandboxID])), nil
		}
	}
	return d.listNames(belongsTo(sandboxID))
}

// isCurrent applies the changes of the directory since the last call. It returns false if the
// directory must be listed.
func (ix *Index) isCurrent(st *unix.Stat_t) bool {
	if ix.names == nil || hostfs.StatID(st) != ix.dirID {
		return false
	}
	complete := true
	ix.queue.Drain(func(ev watch.Event) {
		switch {
		case ev.Dir != ix.watchID && ev.Dir != watch.AllDirs: // of an earlier directory
		case ev.Lost || ev.Ended:
			complete = false
		case ev.Gone:
			ix.removeName(ev.Name)
		default:
			ix.addName(ev.Name)
		}
	})
	if !complete || len(ix.names) > ix.maxNames {
		ix.forgetNames() // the events are gone
		return false
	}
	return true
}

// loadNames watches and lists the directory, in this order, so that every change is in the listing,
// or among the events, or in both, which is harmless. It returns false if there is no watch, or more
// names than memory is for.
func (ix *Index) loadNames(d *directory, st *unix.Stat_t) bool {
	ix.forgetNames()
	ix.reloads++
	id, err := ix.queue.Add(d.fd(), watch.Names)
	if err != nil {
		return false
	}
	ix.watchID, ix.dirID, ix.names = id, hostfs.StatID(st), map[string][]string{}
	if d.visitNames(ix.maxNames, ix.addName) != nil {
		ix.forgetNames()
		return false
	}
	return true
}

// forgetNames empties the index and ends the watch.
func (ix *Index) forgetNames() {
	if ix.names != nil {
		ix.queue.Remove(ix.watchID)
	}
	ix.names = nil
}

func (ix *Index) addName(name string) {
	_, id, _ := SplitCNIFileName(name)
	if id != "" && !slices.Contains(ix.names[id], name) {
		ix.names[id] = append(ix.names[id], name)
	}
}

func (ix *Index) removeName(name string) {
	_, id, _ := SplitCNIFileName(name)
	ix.names[id] = slices.DeleteFunc(ix.names[id], func(other string) bool { return other == name })
	if len(ix.names[id]) == 0 {
		delete(ix.names, id)
	}
}
