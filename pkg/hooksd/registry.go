// SPDX-License-Identifier: Apache-2.0

package hooksd

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// Options change how a registry reads. The zero value is what a node wants.
type Options struct {
	// TrustAnyone looks at no owner and no mode: for looking at a tree that is not
	// in use.
	TrustAnyone bool
	// Once takes no inotify descriptor: for a process that takes one snapshot.
	Once bool
}

// Registry reads hooks.d directories. It is safe for concurrent use.
type Registry struct {
	host hostfs.Root
	opts Options
	euid uint32

	mu    sync.Mutex
	watch watcher
	dirs  []*directory
	cur   *Snapshot
}

// directory is a hooks.d directory as it was read last.
type directory struct {
	path    string
	read    bool
	id      identity
	wd      int // -1 while nothing is announced
	problem *Problem
	entries map[string]*entry
}

// Snapshot is what the directories hold at one moment. It is not to be altered.
type Snapshot struct {
	// Generation counts the snapshots that differ from the one before.
	Generation uint64
	// Hooks are in the order in which they are injected. Those whose program
	// cannot be run have Err.
	Hooks []*Hook
	// Problems are of files and directories, in the order of their paths.
	Problems []*Problem
}

// New makes a registry of directories, host paths in rising preference: a file in
// a later one masks the file of the same name in an earlier. One that does not
// exist yet is read when it does. Nothing is read before the first Snapshot.
func New(host hostfs.Root, dirs []string, opts Options) *Registry {
	r := &Registry{host: host, opts: opts, euid: uint32(unix.Geteuid()), watch: watcher{fd: -1}, cur: &Snapshot{}}
	for _, d := range dirs {
		r.dirs = append(r.dirs, &directory{path: path.Clean(d), wd: -1})
	}
	return r
}

// Close frees the watches.
func (r *Registry) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.watch.close()
}

// Snapshot returns what the directories hold now. It reads what changed since the
// last one.
func (r *Registry) Snapshot() *Snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	stale := r.announced()
	changed := false
	for _, d := range r.dirs {
		id := identify(r.host.Stat(d.path))
		if !d.read || stale[d.wd] || stale[overflow] || d.wd < 0 && id.errno == 0 || id != d.id || r.otherwise(d) {
			changed = r.refresh(d) || changed
		}
	}
	programs := r.programs()
	if changed || programs || r.cur.Generation == 0 {
		r.cur = r.assemble()
	}
	return r.cur
}

// overflow stands among the watches for events that were lost.
const overflow = -2

// Hooks are those of Snapshot.
func (r *Registry) Hooks() []*Hook { return r.Snapshot().Hooks }

// announced are the watches of which there is news.
func (r *Registry) announced() map[int]bool {
	var stale map[int]bool
	r.watch.drain(func(ev hostfs.InotifyEvent) {
		if len(ev.Name) > 0 && !bytes.HasSuffix(ev.Name, []byte(".json")) && ev.Mask&unix.IN_ISDIR == 0 {
			return
		}
		if stale == nil {
			stale = map[int]bool{}
		}
		if ev.Mask&unix.IN_Q_OVERFLOW != 0 {
			stale[overflow] = true
			return
		}
		stale[int(ev.WD)] = true
	})
	return stale
}

// otherwise tells of a change that is not announced: of what a symlink leads to,
// or of a file that has another name elsewhere.
func (r *Registry) otherwise(d *directory) bool {
	for _, e := range d.entries {
		if e.volatile && r.changed(e) {
			return true
		}
	}
	return false
}

// refresh reads the directory again, files only where they are not those it has.
// It reports whether anything is different.
func (r *Registry) refresh(d *directory) bool {
	before, problem, first := d.entries, d.problem, !d.read
	d.read, d.entries, d.problem = true, map[string]*entry{}, nil
	dir, err := r.host.Open(d.path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		d.id = identify(unix.Stat_t{}, err)
		r.watch.remove(d)
		if !errdefs.IsNotFound(err) || errors.Is(err, unix.ENOTDIR) {
			d.problem = &Problem{File: d.path, Rule: "cannot read the directory: " + errnoOf(err).Error(), cause: errdefs.ErrUnavailable}
		}
		return first || len(before) > 0 || differs(problem, d.problem)
	}
	defer dir.Close()
	fd := int(dir.Fd())
	// The watch is there before the names are read, so that nothing can happen
	// between the two unseen.
	if !r.opts.Once {
		r.watch.add(d, fd)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		d.problem = &Problem{File: d.path, Rule: "cannot look at the directory: " + err.Error(), cause: errdefs.ErrUnavailable}
		return true
	}
	d.id = identify(st, nil)
	if d.problem = r.distrust("directory", d.path, &st); d.problem != nil {
		return first || len(before) > 0 || differs(problem, d.problem)
	}
	names, err := list(dir)
	if err != nil {
		d.problem = &Problem{File: d.path, Rule: err.Error(), cause: errdefs.ErrResourceExhausted}
	}
	changed := first || len(names) != len(before) || differs(problem, d.problem)
	for _, name := range names {
		e := before[name]
		if e == nil || !r.same(fd, name, e) {
			e, changed = r.load(fd, d.path, name), true
		}
		if e != nil {
			d.entries[name] = e
		}
	}
	return changed
}

func differs(a, b *Problem) bool {
	return (a == nil) != (b == nil) || a != nil && a.Error() != b.Error()
}

// programs looks whether each hook's program is on the host and can be run, and
// reports whether that has changed for one.
func (r *Registry) programs() bool {
	changed := false
	for _, d := range r.dirs {
		for _, e := range d.entries {
			if e.hook == nil {
				continue
			}
			if p := r.program(e); differs(e.program, p) {
				e.program, changed = p, true
			}
		}
	}
	return changed
}

// assemble makes a snapshot: of each name the most preferred file that is in
// order, as the real parser has it. A file in error masks none.
func (r *Registry) assemble() *Snapshot {
	s := &Snapshot{Generation: r.cur.Generation + 1}
	usable, broken := map[string]*Hook{}, map[string]*Hook{}
	for _, d := range r.dirs {
		if d.problem != nil {
			s.Problems = append(s.Problems, d.problem)
		}
		for name, e := range d.entries {
			s.Problems = append(s.Problems, e.problems...)
			switch {
			case e.hook == nil:
			case e.program != nil:
				s.Problems = append(s.Problems, e.program)
				h := *e.hook
				h.Err = e.program
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
	sortProblems(s.Problems)
	return s
}

// distrust is why a file or directory is not believed: whoever can write it runs
// programs as root on this host.
func (r *Registry) distrust(what, file string, st *unix.Stat_t) *Problem {
	if r.opts.TrustAnyone {
		return nil
	}
	perm := st.Mode & 0o7777
	if st.Uid != 0 && st.Uid != r.euid {
		return &Problem{File: file, Found: fmt.Sprintf("the %s owned by uid %d, mode %04o", what, st.Uid, perm), cause: errdefs.ErrPermissionDenied,
			Rule: fmt.Sprintf("it must belong to root, or somebody else decides what runs as root; run `chown root %s`", file)}
	}
	if perm&0o022 != 0 {
		return &Problem{File: file, Found: fmt.Sprintf("the %s with mode %04o", what, perm), cause: errdefs.ErrPermissionDenied,
			Rule: "it must be writable by its owner alone; " + hostfs.WriteRemedy(file, st.Mode)}
	}
	return nil
}
