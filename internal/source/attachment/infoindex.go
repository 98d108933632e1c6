// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"sync"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/name"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/host/watch"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

const (
	// maxIndexNames bounds the file names that an infoIndex keeps in memory, in about 15 MB. A larger directory is
	// listed by each lookup, which is slower.
	maxIndexNames = 1 << 16
	// maxIndexedFiles bounds the files of one sandbox that a lookup opens by their names. A pod has a handful of
	// networks.
	maxIndexedFiles = 64
)

// infoIndex returns the entries of [deviceinfo.CNIDir.ReadSandbox]. For the sandbox IDs of containerd and CRI-O its
// cost does not depend on the number of files of other sandboxes. Multus does not always remove these files, so a
// directory can hold thousands.
//
// An index keeps the file names in memory and watches the directory by inotify. Each lookup drains the events first.
// The kernel queues an event before the system call that caused it returns, so a lookup sees every file that existed
// when it began. The directory is listed again after lost events, and when the path leads to another directory.
// Without inotify, and for other sandbox IDs, each lookup lists the directory.
//
// An index runs no goroutine. It is safe for concurrent use.
type infoIndex struct {
	host     hostfs.Root
	dir      deviceinfo.CNIDir
	maxNames int

	mu     sync.Mutex
	closed bool
	queue  watch.Queue
	names  map[string][]string // file names by sandbox ID; nil if none are kept
	// dirID identifies the directory of which queue has the events and names the names.
	dirID   hostfs.FileID
	watchID int // of the directory in queue

	reloads int // number of listings, for tests
}

// newInfoIndex returns an index of a host directory, which is not read yet and need not exist; "" is the directory of
// the specification. Close closes the descriptor that lookups open.
func newInfoIndex(host hostfs.Root, dir string) (*infoIndex, error) {
	dir = cmp.Or(dir, deviceinfo.DefaultCNIDir)
	if err := hostfs.CheckPath(dir); err != nil {
		return nil, fmt.Errorf("device-info directory %q: %w", dir, err)
	}
	at := deviceinfo.CNIDir{Root: host.Dir(), Dir: path.Clean(dir)}
	return &infoIndex{host: host, dir: at, maxNames: maxIndexNames}, nil
}

// Close closes the inotify descriptor. Later lookups fail. A second call is no error.
func (ix *infoIndex) Close() error {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.closed = true
	ix.forgetNames()
	return ix.queue.Close()
}

// lookup reads the files of one sandbox.
func (ix *infoIndex) lookup(sandboxID string) (entries []deviceinfo.Entry, err error) {
	names, known, err := ix.findNames(sandboxID)
	if err != nil || known && len(names) == 0 {
		return nil, err
	}
	if !known || len(names) > maxIndexedFiles {
		return ix.dir.ReadSandbox(sandboxID)
	}
	return ix.dir.ReadFiles(sandboxID, names)
}

// hasSandbox reports whether the sandbox has any file.
func (ix *infoIndex) hasSandbox(sandboxID string) (bool, error) {
	names, known, err := ix.findNames(sandboxID)
	if err != nil || known {
		return len(names) > 0, err
	}
	entries, err := ix.dir.ReadSandbox(sandboxID)
	return len(entries) > 0, err
}

// findNames returns the names of a sandbox's files. known is false if the directory must be listed for them. Most
// containers of a node have none, so a current index answers without opening the directory.
func (ix *infoIndex) findNames(sandboxID string) (names []string, known bool, err error) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if ix.closed {
		return nil, false, fmt.Errorf("look up sandbox %q: the index of %q is closed: %w",
			sandboxID, ix.dir.Dir, errdefs.ErrFailedPrecondition)
	}
	if !name.IsHexSandboxID(sandboxID) {
		return nil, false, nil
	}
	st, err := ix.host.Stat(ix.dir.Dir)
	if err != nil || !ix.isCurrent(&st) && !ix.loadNames() {
		return nil, false, nil // ReadSandbox reports the error
	}
	return slices.Clone(ix.names[sandboxID]), true, nil
}

// isCurrent applies the changes of the directory since the last call. It returns false if the directory must be listed.
func (ix *infoIndex) isCurrent(st *unix.Stat_t) bool {
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

// loadNames watches and lists the directory, in this order, so that every change is in the listing, or among the
// events, or in both, which is harmless. It returns false without a watch, and if the names do not fit into memory.
func (ix *infoIndex) loadNames() bool {
	ix.forgetNames()
	ix.reloads++
	d, err := ix.host.Open(ix.dir.Dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return false
	}
	defer d.Close()
	var st unix.Stat_t
	if unix.Fstat(int(d.Fd()), &st) != nil {
		return false
	}
	id, err := ix.queue.Add(int(d.Fd()), watch.Names)
	if err != nil {
		return false
	}
	ix.watchID, ix.dirID, ix.names = id, hostfs.StatID(&st), map[string][]string{}
	if !ix.addNames(d) {
		ix.forgetNames()
		return false
	}
	return true
}

// addNames adds the names in a directory. It returns false after an error, and if there are too many.
func (ix *infoIndex) addNames(d *os.File) bool {
	for seen := 0; seen <= ix.maxNames; {
		names, err := d.Readdirnames(1024)
		seen += len(names)
		for _, file := range names {
			ix.addName(file)
		}
		if err != nil {
			return errors.Is(err, io.EOF) && seen <= ix.maxNames
		}
	}
	return false
}

// forgetNames empties the index and ends the watch.
func (ix *infoIndex) forgetNames() {
	if ix.names != nil {
		ix.queue.Remove(ix.watchID)
	}
	ix.names = nil
}

// addName adds a file under the sandbox ID in its name. The file itself is read only when that sandbox is resolved.
func (ix *infoIndex) addName(file string) {
	_, id, _ := name.SplitInfoFile(file)
	if id != "" && !slices.Contains(ix.names[id], file) {
		ix.names[id] = append(ix.names[id], file)
	}
}

// removeName removes a file. A sandbox without files has no entry, so that the index does not grow.
func (ix *infoIndex) removeName(file string) {
	_, id, _ := name.SplitInfoFile(file)
	ix.names[id] = slices.DeleteFunc(ix.names[id], func(other string) bool { return other == file })
	if len(ix.names[id]) == 0 {
		delete(ix.names, id)
	}
}
