// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/host/trust"
	"github.com/jackfield/jackfield/internal/host/watch"
)

// Registry keeps the spec files of some directories as they are on disk. It has no
// goroutine of its own: each Snapshot takes the kernel's change events from the queue and
// reads again only the files that changed.
//
// It is safe for concurrent use. Lookups take turns: one that arrives while another reads
// changed files waits for it, because these may be the files it asks for.
type Registry struct {
	host  hostfs.Root
	files trust.Reader
	opts  Options
	names []string // see SnapshotOf

	mu      sync.Mutex
	closed  bool
	watch   *watch.Queue
	dirs    []*specDir
	current *Snapshot
}

// New returns a registry of dirs, host paths in rising priority. It reads nothing and opens
// no descriptor before the first Snapshot.
func New(host hostfs.Root, dirs []string, opts Options) (*Registry, error) {
	if opts.Extensions == nil {
		opts.Extensions = []string{".json", ".yaml"}
	}
	opts.Extensions = slices.Clone(opts.Extensions)
	r := &Registry{host: host, opts: opts, watch: &watch.Queue{}, current: &Snapshot{list: lister{host, opts.Extensions}}}
	r.files = trust.Reader{Host: host, Options: trust.Options{UnmappedOwner: true}, TrustAnyone: opts.TrustAnyone, What: "a spec file", MaxSize: DefaultMaxFileSize,
		TooLarge: "split it: several files can declare devices of one kind"}
	for i, d := range dirs {
		if !path.IsAbs(d) {
			return nil, fmt.Errorf("open CDI spec directory %q: the path must be absolute: %w", d, errdefs.ErrInvalidArgument)
		}
		r.dirs = append(r.dirs, &specDir{path: path.Clean(d), priority: i, watch: noWatch, stale: true, files: map[string]*specFile{}, recheck: map[string]*specFile{}, changed: map[string]bool{}})
		r.current.dirs = append(r.current.dirs, Dir{Path: path.Clean(d), Priority: i})
	}
	return r, nil
}

// Snapshot returns an immutable view that includes every file which was renamed into place,
// or closed after writing, before the call. While nothing changes it returns the same
// pointer. After Close it returns the last view.
//
// A call costs one system call, one stat for each directory, and reading the files that changed.
// It lists a directory only where the directory is new or was replaced, where the kernel dropped
// events, and where the directory cannot be watched.
func (r *Registry) Snapshot() *Snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.refresh()
	}
	return r.current
}

// SnapshotOf returns a snapshot for lookups of the given qualified names, "vendor.com/class=all"
// among them. It leaves out files that cannot declare any of them, without parsing them. Nothing
// is kept for later calls. It is for a process that looks up a few names once; where a lookup
// fails, a lookup in [Registry.Snapshot] has the error that takes all files into account.
func (r *Registry) SnapshotOf(names []string) *Snapshot {
	opts, dirs := r.opts, make([]string, len(r.dirs))
	for i, d := range r.dirs {
		dirs[i] = d.path
	}
	opts.DisableWatch = true
	once, _ := New(r.host, dirs, opts) // the paths are absolute
	once.names = names
	return once.Snapshot()
}

// mayDeclare reports whether a spec file with the given text may declare one of the names. In JSON
// and YAML, a name stands in the text as it is, unless there are escapes, tags (!!binary), or another
// encoding than UTF-8, in which each letter has a NUL.
func mayDeclare(text string, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		kind, device, _ := strings.Cut(name, "=")
		return strings.Contains(text, kind) && (device == "all" || strings.Contains(text, device))
	}) || strings.Contains(text, `\`) || strings.Contains(text, "!") || strings.Contains(text, "\x00")
}

// Close closes the descriptors.
func (r *Registry) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if err := r.watch.Close(); err != nil {
		return fmt.Errorf("close CDI registry: %w", err)
	}
	return nil
}

// refresh makes current hold what is on disk. Events are taken from the queue before the
// directories are checked and files are read, so that nothing that happened before the call
// is missed; what happens meanwhile stays in the queue for the next call.
func (r *Registry) refresh() {
	r.takeEvents()
	u := &update{current: r.current, dirs: slices.Clone(r.current.dirs)}
	for _, d := range r.dirs {
		for name, f := range d.recheck {
			if r.hasChanged(f) {
				d.changed[name] = true
			}
		}
		switch id := identify(r.host.Stat(d.path)); {
		case d.needsListing(id):
			r.reloadDirectory(u, d)
		case len(d.changed) > 0:
			r.reloadFiles(u, d)
		}
		clear(d.changed)
	}
	r.current = u.snapshot()
}

// takeEvents drains the queue and notes the names in each directory that events are about.
func (r *Registry) takeEvents() {
	r.watch.Drain(func(ev watch.Event) {
		for _, d := range r.dirs {
			if ev.Dir != watch.AllDirs && ev.Dir != d.watch {
				continue
			}
			d.stale = d.stale || ev.Lost || ev.Ended
			if ev.Ended {
				d.watch = noWatch
			}
			if r.isSpecName(ev.Name) {
				d.changed[ev.Name] = true
			}
		}
	})
}

func (r *Registry) isSpecName(name string) bool {
	return name != "" && slices.Contains(r.opts.Extensions, path.Ext(name))
}

// hasChanged reports whether a file may have changed, without reading it.
func (r *Registry) hasChanged(f *specFile) bool {
	return identify(r.host.Stat(f.hostPath())) != f.id || f.targetDir != "" && identify(r.host.Stat(f.targetDir)) != f.targetID
}

// reloadDirectory lists a directory and loads the files that changed in it.
func (r *Registry) reloadDirectory(u *update, d *specDir) {
	before := d.id
	dir, err := r.openAndWatch(d)
	var names []string
	if dir != nil {
		defer dir.close()
		if names, err = r.listSpecNames(d); err != nil && !errdefs.IsResourceExhausted(err) {
			d.stale = true // the reason may pass, and no event reports that
		}
	}
	u.setDirectory(d, err)
	for name := range d.files {
		if _, present := slices.BinarySearch(names, name); !present {
			u.setFile(d, name, nil)
		}
	}
	// What is known of the files of another directory, or under other rights, may not be so.
	load := slices.DeleteFunc(names, func(name string) bool {
		f := d.files[name]
		return f != nil && d.id == before && !r.hasChanged(f)
	})
	for i, f := range r.loadAll(dir, load) {
		u.setFile(d, load[i], f)
	}
}

// reloadFiles loads the files of a directory that may have changed.
func (r *Registry) reloadFiles(u *update, d *specDir) {
	dir, err := r.openDir(d)
	if err != nil {
		d.stale = true // it was replaced meanwhile, or descriptors are used up
		return
	}
	defer dir.close()
	names := slices.Collect(maps.Keys(d.changed))
	for i, f := range r.loadAll(dir, names) {
		u.setFile(d, names[i], f)
	}
}
