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

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// DefaultIndexNames is how many files an [Index] keeps in memory by default:
// some 15 MB of names.
const DefaultIndexNames = 1 << 16

// IndexOptions are the choices of [NewIndex]. The zero value works.
type IndexOptions struct {
	// MaxNames bounds the files in memory; 0 is [DefaultIndexNames]. A directory
	// with more is listed anew by each lookup: right as ever, but slower.
	MaxNames int
	Parse    ParseOptions
}

// Index answers what [ReadSandbox] answers, at a cost that does not depend on
// the number of files that other sandboxes left in the directory. (Multus leaks
// them.)
//
// It keeps the names in memory, and the content of files that were looked up (see
// contents), and holds the directory open
// with a non-blocking inotify descriptor, which each lookup drains before it
// looks: the kernel queues an event before the system call that caused it
// returns, so a lookup sees every file that was there when it began. The names
// are listed again when events were lost and when the path leads to another
// directory than before. Without a watch (no inotify instances left, say) each
// lookup lists the directory.
//
// An Index runs no goroutine. It may be used by several at once.
type Index struct {
	host    hostfs.Root
	dir     string
	opts    IndexOptions
	content contents

	mu     sync.Mutex
	closed bool
	watch  watch
	open   *os.File // the directory in memory; nil when there is none
	dirfd  int      // open's descriptor
	dev    uint64   // what open is
	ino    uint64
	// full is set when the directory has more names than are kept.
	full  bool
	names map[string]struct{}
	// byTail has the names by what may be the end of the sandbox ID in them,
	// see tails.
	byTail map[string][]string

	reloads int // listings so far, for tests
}

// NewIndex makes the index of cniDir, a host path ("" is [DefaultCNIDir]). It
// reads nothing yet; the directory need not exist. Close frees what lookups
// open.
func NewIndex(host hostfs.Root, cniDir string, opts IndexOptions) (*Index, error) {
	dir, err := cleanDir(cniDir, DefaultCNIDir)
	if err != nil {
		return nil, err
	}
	if opts.MaxNames <= 0 {
		opts.MaxNames = DefaultIndexNames
	}
	return &Index{host: host, dir: dir, opts: opts, watch: watch{fd: -1}}, nil
}

// Close frees the descriptors. Lookups fail from then on. Closing twice is no
// error.
func (ix *Index) Close() error {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.closed = true
	ix.forget()
	return ix.watch.close()
}

// Lookup reads the files of one sandbox, as [ReadSandbox] does.
func (ix *Index) Lookup(sandboxID string) ([]Entry, error) {
	if _, err := sandboxDir(ix.dir, sandboxID); err != nil {
		return nil, err
	}
	names, dirfd, listed, err := ix.find(sandboxID)
	if err != nil {
		return nil, err
	}
	if !listed {
		return ix.opts.Parse.ReadSandbox(ix.host, ix.dir, sandboxID)
	}
	if len(names) == 0 {
		return nil, nil
	}
	defer unix.Close(dirfd)
	return readEntries(ix.dir, sandboxID, names, func(name, file string) (*Info, error) {
		return ix.content.read(ix.opts.Parse, dirfd, name, file)
	}), nil
}

// Has reports whether the sandbox has any file, without opening one.
func (ix *Index) Has(sandboxID string) (bool, error) {
	if _, err := sandboxDir(ix.dir, sandboxID); err != nil {
		return false, err
	}
	ix.mu.Lock()
	names, listed, err := ix.namesOf(sandboxID)
	ix.mu.Unlock()
	if err != nil || listed {
		return len(names) > 0, err
	}
	entries, err := ix.opts.Parse.ReadSandbox(ix.host, ix.dir, sandboxID)
	return len(entries) > 0, err
}

// find brings the index up to date and takes out the names of a sandbox, with a
// descriptor of the directory for the caller, when there are any. listed is
// false when the names are not in memory.
func (ix *Index) find(sandboxID string) (names []string, dirfd int, listed bool, err error) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	names, listed, err = ix.namesOf(sandboxID)
	if err != nil || len(names) == 0 {
		return nil, -1, listed, err
	}
	// A copy: another lookup may find the directory replaced, and close open.
	dirfd, err = unix.FcntlInt(uintptr(ix.dirfd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, -1, false, fmt.Errorf("look up sandbox %q in %q: %w", sandboxID, ix.dir, err)
	}
	return names, dirfd, true, nil
}

// namesOf brings the index up to date and gives the names of a sandbox. listed is
// false when the names are not in memory.
func (ix *Index) namesOf(sandboxID string) (names []string, listed bool, err error) {
	if ix.closed {
		return nil, false, fmt.Errorf("look up sandbox %q: the index of %q is closed: %w", sandboxID, ix.dir, errdefs.ErrFailedPrecondition)
	}
	if err := ix.update(); err != nil {
		return nil, false, err
	}
	if ix.open == nil {
		return nil, true, nil
	}
	if ix.full || !ix.watch.active {
		return nil, false, nil
	}
	for _, name := range ix.byTail[sandboxID[strings.LastIndexByte(sandboxID, '-')+1:]] {
		if _, _, ok := MatchCNIFileName(name, sandboxID); ok {
			names = append(names, name)
		}
	}
	return names, true, nil
}

// update makes the index equal to the directory, at the cost of what changed.
func (ix *Index) update() error {
	st, err := ix.host.Stat(ix.dir)
	switch {
	case errors.Is(err, unix.ENOENT):
		ix.forget()
		return nil
	case err != nil:
		ix.forget()
		return dirError("look at", ix.dir, err)
	case ix.open != nil && st.Dev == ix.dev && st.Ino == ix.ino && ix.watch.active && ix.drain():
		return nil
	}
	return ix.reload()
}

// drain applies the events so far; false asks for a new listing.
func (ix *Index) drain() bool {
	return ix.watch.drain(func(name string, there bool) {
		if there {
			ix.add(name)
		} else {
			ix.remove(name)
		}
	}) && !(ix.full && len(ix.names) <= ix.opts.MaxNames/2)
}

// reload opens the directory, watches it, and lists it, in this order: a change
// is in the listing, or among the events, or in both, which does no harm.
func (ix *Index) reload() error {
	ix.forget()
	ix.reloads++
	f, err := openDirIfThere(ix.host, ix.dir)
	if f == nil {
		return err
	}
	dirfd := int(f.Fd())
	var st unix.Stat_t
	if err := unix.Fstat(dirfd, &st); err != nil {
		f.Close()
		return dirError("look at", ix.dir, err)
	}
	ix.open, ix.dirfd, ix.dev, ix.ino = f, dirfd, st.Dev, st.Ino
	if ix.watch.add(dirfd) != nil {
		return nil // lookups list the directory, and try again
	}
	ix.names = map[string]struct{}{}
	ix.byTail = map[string][]string{}
	err = scanDir(f, ix.dir, maxScan, ix.add)
	if errors.Is(err, errdefs.ErrResourceExhausted) {
		ix.full, err = true, nil
	}
	if err != nil {
		ix.forget()
	}
	return err
}

// forget empties the index and closes the directory.
func (ix *Index) forget() {
	if ix.open != nil {
		ix.watch.remove()
		ix.open.Close()
	}
	ix.open, ix.names, ix.byTail, ix.full = nil, nil, nil, false
	ix.content.forgetAll()
}

func (ix *Index) add(name string) {
	if _, have := ix.names[name]; have {
		return
	}
	ts := tails(name)
	if len(ts) == 0 {
		return
	}
	if len(ix.names) >= ix.opts.MaxNames {
		ix.full = true
		return
	}
	ix.names[name] = struct{}{}
	for _, t := range ts {
		ix.byTail[t] = append(ix.byTail[t], name)
	}
}

func (ix *Index) remove(name string) {
	if _, have := ix.names[name]; !have {
		return
	}
	ix.content.forget(name)
	delete(ix.names, name)
	for _, t := range tails(name) {
		list := ix.byTail[t]
		for i := range list {
			if list[i] == name {
				list[i] = list[len(list)-1]
				list[len(list)-1] = ""
				list = list[:len(list)-1]
				break
			}
		}
		if len(list) == 0 {
			delete(ix.byTail, t)
		} else {
			ix.byTail[t] = list
		}
	}
}

// tails are the keys of a name: for every sandbox ID that [MatchCNIFileName]
// could find in it, what follows the last "-" of the ID. Where the ID ends is
// not known beforehand, but it ends at a "_" behind which the name of an
// interface is left, at most 15 bytes; and between the last "-" of
// "-<sandboxID>_" and that "_" lies just that tail. So any ID is found, whatever
// it is made of, and a name has 15 keys at most (one, as a rule).
func tails(name string) []string {
	if CheckFileName(name) != nil {
		return nil
	}
	var ts []string
	for q := len(name) - 2; q > 1 && len(name)-q-1 <= maxIfName; q-- {
		if name[q] != '_' || !validIfName(name[q+1:]) {
			continue
		}
		if p := strings.LastIndexByte(name[:q], '-'); p > 0 && !slices.Contains(ts, name[p+1:q]) {
			ts = append(ts, name[p+1:q])
		}
	}
	return ts
}
