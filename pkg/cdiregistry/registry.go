// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"fmt"
	"hash/maphash"
	"os"
	"path"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// Registry keeps the spec files of some directories as they are on disk.
//
// It has no goroutine of its own. Each Snapshot first looks whether anything
// was announced since the last one; only what was is read again, without a
// lock, by the caller who came first. Callers who come meanwhile take on what
// was announced since and wait for the rest, because it may be what they ask for.
type Registry struct {
	host    hostfs.Root
	opts    Options
	euid    uint32
	outside func() (hostfs.Outside, bool)
	dirs    []*specDir
	seed    maphash.Seed
	loaders sync.Pool // of *loader

	cur atomic.Pointer[Snapshot]
	// busy counts the callers between taking events off the queue and publishing
	// what they mean. While it is not 0, an empty queue tells nothing.
	busy  atomic.Int32
	guard guard

	// mu guards what follows. It is held to take events and to publish a snapshot,
	// never while a file is read or a directory is listed.
	mu     sync.Mutex
	watch  watcher
	states []dirState // one a directory
	open   []*batch   // taken and not yet published
	seq    uint64     // of the last batch
	ids    fileIDs
	closed bool
	// committed and scanned are the batches that last published a file, and a whole
	// directory, while others were open: an older batch that ends later must not
	// put back what a newer one has seen.
	committed map[fileKey]uint64
	scanned   []uint64
}

// dirState is where the registry stands with one directory.
type dirState struct {
	id    dirIdentity
	wd    int // its watch, or -1
	known bool
	// stale tells that the kernel dropped announcements or ended the watch.
	stale bool
}

// fileKey is a file by directory and name.
type fileKey struct {
	dir  int
	name string
}

// New makes a registry of dirs, host paths in rising priority. Nothing is read
// before the first Snapshot, and no descriptor is held before it.
func New(host hostfs.Root, dirs []string, opts Options) (*Registry, error) {
	if opts.Extensions == nil {
		opts.Extensions = []string{".json", ".yaml"}
	}
	if opts.MaxFileSize <= 0 {
		opts.MaxFileSize = DefaultMaxFileSize
	}
	opts.Extensions = slices.Clone(opts.Extensions)
	r := &Registry{
		host: host, opts: opts, euid: uint32(os.Geteuid()), outside: sync.OnceValues(hostfs.UserNamespace), seed: maphash.MakeSeed(),
		loaders: sync.Pool{New: func() any { return &loader{} }},
		watch:   watcher{fd: -1},
		guard:   guard{poll: -1, ways: -1, mounts: -1, off: opts.DisableWatch},
		states:  make([]dirState, len(dirs)),
		scanned: make([]uint64, len(dirs)),
	}
	known := &words{}
	for i, d := range dirs {
		if !path.IsAbs(d) {
			return nil, fmt.Errorf("open CDI spec directory %q: the path must be absolute: %w", d, errdefs.ErrInvalidArgument)
		}
		dir := &specDir{path: path.Clean(d), prio: i, words: known}
		dir.prefix = len(dir.join(""))
		r.dirs = append(r.dirs, dir)
		r.states[i].wd = -1
	}
	r.cur.Store(newSnapshot(r))
	return r, nil
}

// Snapshot is an immutable view that includes every file which was renamed into
// place, or closed after writing, before the call began. When nothing has
// changed, it is the same pointer as the last time. After Close it is the last view.
//
// The call costs a few system calls, and the work of what changed; it lists a
// directory only when the directory is new or another than before, when
// the kernel has dropped announcements, or when it cannot be watched.
func (r *Registry) Snapshot() *Snapshot {
	if cur := r.cur.Load(); r.quiet(cur) {
		return cur
	}
	return r.refresh()
}

// Close gives the descriptors back, after the loads under way.
func (r *Registry) Close() error {
	r.mu.Lock()
	r.closed = true
	r.guard.close()
	err := r.watch.close()
	open := slices.Clone(r.open)
	r.mu.Unlock()
	for _, b := range open {
		<-b.done
	}
	if err != nil {
		return fmt.Errorf("close CDI registry: %w", err)
	}
	return nil
}

// quiet tells that cur is what the disk holds, and is still the newest.
//
// The order matters. Events that another caller took before the queue was looked
// at had raised busy before they were taken; if busy is 0 now they are published,
// and cur being the newest then means that they are in it.
func (r *Registry) quiet(cur *Snapshot) bool {
	s := r.guard.look(cur.dirs)
	if s == announced || s != unchanged && !r.unmoved(cur) {
		return false
	}
	for _, e := range cur.volatile {
		if r.changed(e) {
			return false
		}
	}
	if s != unchanged && r.watch.queued() || r.busy.Load() != 0 || r.cur.Load() != cur {
		return false
	}
	if s == due {
		r.arm()
	}
	return true
}

// unmoved tells that the directories are those that cur knows, and are watched.
func (r *Registry) unmoved(cur *Snapshot) bool {
	for i := range cur.dirs {
		if v := &cur.dirs[i]; v.rescan || r.identify(v.dir) != v.id {
			return false
		}
	}
	return true
}

// identify looks at the inode a directory's path leads to.
func (r *Registry) identify(d *specDir) dirIdentity {
	st, err := r.host.Stat(d.path)
	if err != nil {
		return dirIdentity{errno: errnoOf(err)}
	}
	return dirIdentityOf(&st)
}

// changed looks whether a file that is not covered by announcements is another.
func (r *Registry) changed(e *entry) bool {
	if e.check == checkReload || e.racy {
		return true
	}
	st, err := r.host.Stat(e.path())
	if err != nil {
		return identity{errno: errnoOf(err)} != e.id
	}
	if identityOf(&st) != e.id {
		return true
	}
	if e.target == nil {
		return false
	}
	st, err = r.host.Stat(e.target.path)
	return err != nil || dirIdentityOf(&st) != e.target.id
}
