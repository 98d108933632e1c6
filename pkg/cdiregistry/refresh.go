// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"path"
	"slices"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// batch is what one caller found to have changed, and loads.
type batch struct {
	seq   uint64
	files map[fileKey]struct{}
	scans []*scan
	done  chan struct{} // closed when published

	loaded []loaded
	again  []int // directories that could not be opened or listed, to be listed anew
}

// loaded is a file as it is now; entry is nil when it is gone.
type loaded struct {
	fileKey
	entry *entry
}

// scan is a directory to be listed anew.
type scan struct {
	i     int
	dir   *openDir // nil when there is none
	id    dirIdentity
	err   error
	known *Snapshot // may be kept of this, when their identity is the same; nil for nothing
	// watched tells that changes from now on are announced.
	watched bool
	names   map[string]struct{} // found, when err is nil
}

// again reports that the directory could not be listed, for a reason that may pass.
func (s *scan) again() bool {
	return s.dir != nil && s.err != nil && !errdefs.IsResourceExhausted(s.err)
}

// refresh takes what was announced, loads it and publishes it.
func (r *Registry) refresh() *Snapshot {
	r.busy.Add(1)
	defer r.busy.Add(-1)
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return r.cur.Load()
	}
	older := slices.Clone(r.open)
	b := r.collect()
	if b != nil {
		r.open = append(r.open, b)
	}
	r.mu.Unlock()
	if b != nil {
		r.work(b)
	}
	for _, o := range older {
		<-o.done
	}
	return r.cur.Load()
}

// work loads a batch, without the lock, and publishes it.
func (r *Registry) work(b *batch) {
	defer close(b.done)
	for _, s := range b.scans {
		r.scan(b, s)
	}
	r.loadFiles(b)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.commit(b)
}

// collect finds out what changed; nil is nothing. It runs under the lock and
// does no more than a few system calls a directory.
func (r *Registry) collect() *batch {
	b := &batch{files: map[fileKey]struct{}{}, done: make(chan struct{})}
	r.watch.drain(func(ev hostfs.InotifyEvent) { r.take(b, ev) })
	cur := r.cur.Load()
	for i := range r.states {
		st := &r.states[i]
		id := r.identify(r.dirs[i])
		// A scan that is under way covers what happened before its watch began, and
		// the queue what happened after; without a watch nothing does.
		if st.known && !st.stale && st.id == id && (st.wd >= 0 || id.errno != 0) {
			continue
		}
		b.scans = append(b.scans, r.begin(i, cur))
	}
	for _, e := range cur.volatile {
		if r.changed(e) {
			b.files[fileKey{e.dir.prio, e.key()}] = struct{}{}
		}
	}
	if len(b.files) == 0 && len(b.scans) == 0 {
		return nil
	}
	r.seq++
	b.seq = r.seq
	return b
}

// take notes what an event is about.
func (r *Registry) take(b *batch, ev hostfs.InotifyEvent) {
	name := string(ev.Name)
	for i := range r.states {
		st := &r.states[i]
		if ev.Mask&unix.IN_Q_OVERFLOW != 0 {
			st.stale = true
			continue
		}
		if st.wd != int(ev.WD) {
			continue
		}
		switch {
		case ev.Mask&(unix.IN_IGNORED|unix.IN_UNMOUNT) != 0:
			st.wd, st.stale = -1, true
		case ev.Mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF) != 0:
			st.stale = true
		case name != "" && slices.Contains(r.opts.Extensions, path.Ext(name)):
			b.files[fileKey{i, name}] = struct{}{}
		}
	}
}

// begin opens and watches directory i, before it is listed, so that nothing can
// happen between the two unseen.
func (r *Registry) begin(i int, cur *Snapshot) *scan {
	st := &r.states[i]
	s := &scan{i: i}
	dir, err := r.openDir(r.dirs[i])
	wd := -1
	if err != nil {
		s.err, s.id = err, r.identify(r.dirs[i])
		if errnoOf(err) == unix.ENOENT {
			s.id = dirIdentity{errno: unix.ENOENT}
		}
	} else {
		s.dir, s.id = dir, dirIdentityOf(&dir.st)
		if !r.opts.DisableWatch {
			if w, err := r.watch.add(dir); err == nil {
				wd = w
			}
		}
	}
	if st.wd >= 0 && st.wd != wd {
		r.unwatch(i, st.wd)
	}
	*st = dirState{id: s.id, wd: wd, known: true}
	s.watched = wd >= 0
	if old := &cur.dirs[i]; s.dir != nil && r.trusted(old.id) && r.trusted(s.id) {
		s.known = cur
	}
	return s
}

// unwatch ends the watch of directory i unless another directory shares it, being
// the same inode.
func (r *Registry) unwatch(i, wd int) {
	for j := range r.states {
		if j != i && r.states[j].wd == wd {
			return
		}
	}
	r.watch.remove(wd)
}
