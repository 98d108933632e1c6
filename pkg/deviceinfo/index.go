// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/fswatch"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

// maxIndexNames bounds the file names that an [Index] keeps in memory, in about 15 MB. A larger directory is listed by each
// lookup, which is slower.
const maxIndexNames = 1 << 16

// Index returns what [ReadSandbox] returns, at a cost that does not depend on the number of
// files of other sandboxes. Multus does not always remove these files, so a directory can
// hold thousands.
//
// An Index keeps the file names in memory and the directory open, with an inotify
// descriptor that each lookup drains first. The kernel queues an event before the system
// call that caused it returns, so a lookup sees every file that existed when it began. The
// directory is listed again after lost events, and when the path leads to another
// directory. Without inotify, each lookup lists the directory.
//
// An Index runs no goroutine. It is safe for concurrent use.
type Index struct {
	host     hostfs.Root
	dir      string
	maxNames int

	mu       sync.Mutex
	closed   bool
	queue    fswatch.Queue
	open     *os.File // the directory; nil if it does not exist
	dirfd    int      // descriptor of open
	dev, ino uint64   // identity of open
	watched  bool     // queue watches open
	watchID  int
	// full is set if the directory has more names than maxNames.
	full  bool
	names map[string]struct{}
	// bySuffix holds the names by each of their suffixKeys.
	bySuffix map[string][]string

	reloads int // number of listings, for tests
}

// NewIndex returns an index of cniDir, a host path ("" is [DefaultCNIDir]). The directory
// is not read yet, and need not exist. Close closes the descriptors that lookups open.
func NewIndex(host hostfs.Root, cniDir string) (*Index, error) {
	dir, err := cleanDir(cniDir, DefaultCNIDir)
	if err != nil {
		return nil, err
	}
	return &Index{host: host, dir: dir, maxNames: maxIndexNames}, nil
}

// Close closes the descriptors. Later lookups fail. A second call is no error.
func (ix *Index) Close() error {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.closed = true
	ix.clearNames()
	return ix.queue.Close()
}

// Lookup reads the files of one sandbox, as [ReadSandbox] does.
func (ix *Index) Lookup(sandboxID string) ([]Entry, error) {
	if _, err := sandboxDir(ix.dir, sandboxID); err != nil {
		return nil, err
	}
	names, dirfd, inMemory, err := ix.namesAndDir(sandboxID)
	if err != nil {
		return nil, err
	}
	if !inMemory {
		return ReadSandbox(ix.host, ix.dir, sandboxID)
	}
	if len(names) == 0 {
		return nil, nil
	}
	defer unix.Close(dirfd)
	return readEntries(dirfd, ix.dir, sandboxID, names), nil
}

// Has reports whether the sandbox has any file, without opening one.
func (ix *Index) Has(sandboxID string) (bool, error) {
	if _, err := sandboxDir(ix.dir, sandboxID); err != nil {
		return false, err
	}
	ix.mu.Lock()
	names, inMemory, err := ix.namesOf(sandboxID)
	ix.mu.Unlock()
	if err != nil || inMemory {
		return len(names) > 0, err
	}
	entries, err := ReadSandbox(ix.host, ix.dir, sandboxID)
	return len(entries) > 0, err
}

// namesAndDir is namesOf with a descriptor of the directory, which the caller closes, if
// there are names.
func (ix *Index) namesAndDir(sandboxID string) (names []string, dirfd int, inMemory bool, err error) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	names, inMemory, err = ix.namesOf(sandboxID)
	if err != nil || len(names) == 0 {
		return nil, -1, inMemory, err
	}
	// A copy, because another lookup closes open when the directory is replaced.
	dirfd, err = unix.FcntlInt(uintptr(ix.dirfd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, -1, false, fmt.Errorf("look up sandbox %q in %q: %w", sandboxID, ix.dir, err)
	}
	return names, dirfd, true, nil
}

// namesOf updates the index and returns the file names of a sandbox. inMemory is false if
// the index does not hold the directory's names.
func (ix *Index) namesOf(sandboxID string) (names []string, inMemory bool, err error) {
	if ix.closed {
		return nil, false, fmt.Errorf("look up sandbox %q: the index of %q is closed: %w", sandboxID, ix.dir, errdefs.ErrFailedPrecondition)
	}
	if err := ix.update(); err != nil {
		return nil, false, err
	}
	if ix.open == nil {
		return nil, true, nil
	}
	if ix.full || !ix.watched {
		return nil, false, nil
	}
	for _, name := range ix.bySuffix[sandboxID[strings.LastIndexByte(sandboxID, '-')+1:]] {
		if _, _, ok := MatchCNIFileName(name, sandboxID); ok {
			names = append(names, name)
		}
	}
	return names, true, nil
}

// update applies the changes of the directory since the last call.
func (ix *Index) update() error {
	st, err := ix.host.Stat(ix.dir)
	switch {
	case errors.Is(err, unix.ENOENT):
		ix.clearNames()
		return nil
	case err != nil:
		ix.clearNames()
		return dirError("stat", ix.dir, err)
	case ix.open != nil && st.Dev == ix.dev && st.Ino == ix.ino && ix.watched && ix.drainEvents():
		return nil
	}
	return ix.reload()
}

// drainEvents applies the pending events; false means that the directory must be listed.
func (ix *Index) drainEvents() bool {
	complete := true
	ix.queue.Drain(func(ev fswatch.Event) {
		switch {
		case ev.Dir != ix.watchID && ev.Dir != fswatch.AllDirs: // of an earlier directory
		case ev.Lost || ev.Ended:
			complete = false
		case ev.Gone:
			ix.removeName(ev.Name)
		default:
			ix.addName(ev.Name)
		}
	})
	return complete && !(ix.full && len(ix.names) <= ix.maxNames/2)
}

// reload opens, watches and lists the directory, in this order, so that every change is in
// the listing, or among the events, or in both, which is harmless.
func (ix *Index) reload() error {
	ix.clearNames()
	ix.reloads++
	f, err := openDirIfExists(ix.host, ix.dir)
	if f == nil {
		return err
	}
	dirfd := int(f.Fd())
	var st unix.Stat_t
	if err := unix.Fstat(dirfd, &st); err != nil {
		f.Close()
		return dirError("stat", ix.dir, err)
	}
	ix.open, ix.dirfd, ix.dev, ix.ino = f, dirfd, st.Dev, st.Ino
	if ix.watchID, err = ix.queue.Add(dirfd, fswatch.Names); err != nil {
		return nil // this lookup lists the directory, and the next one tries to watch again
	}
	ix.watched = true
	ix.names = map[string]struct{}{}
	ix.bySuffix = map[string][]string{}
	err = visitNames(f, ix.dir, maxListed, ix.addName)
	if errors.Is(err, errdefs.ErrResourceExhausted) {
		ix.full, err = true, nil
	}
	if err != nil {
		ix.clearNames()
	}
	return err
}

// clearNames empties the index and closes the directory.
func (ix *Index) clearNames() {
	if ix.open != nil {
		if ix.watched {
			ix.queue.Remove(ix.watchID)
		}
		ix.open.Close()
	}
	ix.open, ix.names, ix.bySuffix, ix.full, ix.watched = nil, nil, nil, false, false
}

func (ix *Index) addName(name string) {
	if _, have := ix.names[name]; have {
		return
	}
	keys := suffixKeys(name)
	if len(keys) == 0 {
		return
	}
	if len(ix.names) >= ix.maxNames {
		ix.full = true
		return
	}
	ix.names[name] = struct{}{}
	for _, key := range keys {
		ix.bySuffix[key] = append(ix.bySuffix[key], name)
	}
}

func (ix *Index) removeName(name string) {
	if _, have := ix.names[name]; !have {
		return
	}
	delete(ix.names, name)
	for _, key := range suffixKeys(name) {
		rest := slices.DeleteFunc(ix.bySuffix[key], func(other string) bool { return other == name })
		if len(rest) == 0 {
			delete(ix.bySuffix, key)
		} else {
			ix.bySuffix[key] = rest
		}
	}
}

// suffixKeys returns the index keys of a file name: for every sandbox ID that
// [MatchCNIFileName] could find in the name, the part of the ID after its last "-". An ID
// ends before a "_" that a valid interface name follows, which has at most 15 bytes, so a
// name has at most 15 keys, and usually one.
func suffixKeys(name string) []string {
	if CheckFileName(name) != nil {
		return nil
	}
	var keys []string
	for end := len(name) - 2; end > 1 && len(name)-end-1 <= maxIfName; end-- {
		if name[end] != '_' || !isIfName(name[end+1:]) {
			continue
		}
		if dash := strings.LastIndexByte(name[:end], '-'); dash > 0 && !slices.Contains(keys, name[dash+1:end]) {
			keys = append(keys, name[dash+1:end])
		}
	}
	return keys
}
