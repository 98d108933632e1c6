// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"fmt"
	"maps"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/host/trust"
	"github.com/jackfield/jackfield/internal/host/watch"
)

// reader reads the spec files of some directories and knows which of them changed. It is not safe for concurrent use.
type reader struct {
	host    hostfs.Root
	files   trust.Reader
	opts    Options  // with values for the fields that were left out
	names   []string // see Cache.SnapshotOf
	watch   *watch.Queue
	dirs    []*specDir
	current *Snapshot
}

// newReader returns a reader that has not read anything. The error is errdefs.ErrInvalidArgument.
func newReader(host hostfs.Root, opts Options) (*reader, error) {
	if opts.SpecDirs == nil {
		opts.SpecDirs = DefaultSpecDirs()
	}
	if opts.Extensions == nil {
		opts.Extensions = []string{".json", ".yaml"}
	}
	opts.SpecDirs, opts.Extensions = slices.Clone(opts.SpecDirs), slices.Clone(opts.Extensions)
	r := &reader{host: host, opts: opts, watch: &watch.Queue{}}
	r.current = &Snapshot{host: host, extensions: opts.Extensions}
	r.files = trust.Reader{Host: host, Options: trust.Options{UnmappedOwner: true}, TrustAnyone: opts.TrustAnyone,
		What: "a spec file", MaxSize: MaxFileSize, TooLarge: "split it: several files can declare devices of one kind"}
	for i, dir := range opts.SpecDirs {
		if !path.IsAbs(dir) {
			return nil, fmt.Errorf("open CDI spec directory %q: the path must be absolute: %w", dir, errdefs.ErrInvalidArgument)
		}
		r.dirs = append(r.dirs, newSpecDir(path.Clean(dir), i))
		r.current.dirs = append(r.current.dirs, Dir{Path: path.Clean(dir), Priority: i})
	}
	return r, nil
}

// mayDeclare reports whether a spec file with the given text can declare one of the names. JSON and YAML have a name
// verbatim, unless the text has escapes, tags (!!binary), or another encoding than UTF-8, in which each letter has a
// NUL.
func mayDeclare(text string, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		kind, device, _ := strings.Cut(name, "=")
		return strings.Contains(text, kind) && (device == "all" || strings.Contains(text, device))
	}) || strings.Contains(text, `\`) || strings.Contains(text, "!") || strings.Contains(text, "\x00")
}

// refresh updates current from the disk. It takes events from the queue before it checks directories and reads files,
// so that it misses nothing that happened before the call; later events stay in the queue for the next call.
func (r *reader) refresh() {
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

// takeEvents drains the queue and notes the file names in its events, for each directory.
func (r *reader) takeEvents() {
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

func (r *reader) isSpecName(name string) bool {
	return name != "" && slices.Contains(r.opts.Extensions, path.Ext(name))
}

// hasChanged reports whether a file may have changed, without reading it.
func (r *reader) hasChanged(f *specFile) bool {
	return identify(r.host.Stat(f.hostPath())) != f.id ||
		f.targetDir != "" && identify(r.host.Stat(f.targetDir)) != f.targetID
}

// reloadDirectory lists a directory and loads the files that changed in it.
func (r *reader) reloadDirectory(u *update, d *specDir) {
	before := d.id
	dir, err := r.openAndWatch(d)
	var names []string
	if dir != nil {
		defer dir.close()
		if names, err = r.listSpecNames(d); err != nil && !errdefs.IsResourceExhausted(err) {
			d.stale = true // the cause can pass without an event
		}
	}
	u.setDirectory(d, err)
	for name := range d.files {
		if _, present := slices.BinarySearch(names, name); !present {
			u.setFile(d, name, nil)
		}
	}
	// A replaced directory has other files, and a change of its owner or mode can change which files are trusted.
	load := slices.DeleteFunc(names, func(name string) bool {
		f := d.files[name]
		return f != nil && d.id == before && !r.hasChanged(f)
	})
	for i, f := range r.loadAll(dir, load) {
		u.setFile(d, load[i], f)
	}
}

// reloadFiles loads the files of a directory that may have changed.
func (r *reader) reloadFiles(u *update, d *specDir) {
	dir, err := r.openDir(d)
	if err != nil {
		d.stale = true // the directory was replaced meanwhile, or descriptors are used up
		return
	}
	defer dir.close()
	names := slices.Collect(maps.Keys(d.changed))
	for i, f := range r.loadAll(dir, names) {
		u.setFile(d, names[i], f)
	}
}

// openDir opens a directory, below which its files are opened.
func (r *reader) openDir(d *specDir) (*openDir, error) {
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

// openAndWatch opens a directory and watches it. The caller lists the directory afterwards, so that no change is missed
// between the listing and the first event.
func (r *reader) openAndWatch(d *specDir) (*openDir, error) {
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

// listSpecNames returns the file names in a directory that have the extension of a spec file, sorted.
func (r *reader) listSpecNames(d *specDir) ([]string, error) {
	names, err := r.host.ReadDir(d.path, maxNames)
	names = slices.DeleteFunc(names, func(name string) bool { return !r.isSpecName(name) })
	return slices.Compact(names), err // a file that is renamed meanwhile can be listed twice
}

// loadAll loads files of a directory, on several processors. A nil file does not exist.
func (r *reader) loadAll(d *openDir, names []string) []*specFile {
	files := make([]*specFile, len(names))
	var next atomic.Int64
	work := func() {
		for i := int(next.Add(1)) - 1; i < len(names); i = int(next.Add(1)) - 1 {
			files[i], _ = r.loadFile(d, names[i], false)
		}
	}
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(names)/16+1) - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
	return files
}

// loadFile reads one file. It returns nil if no spec file has that name, or if the file declares no name of
// SnapshotOf. The second result is the content of a readable file.
func (r *reader) loadFile(d *openDir, name string, withRefs bool) (*specFile, parsedSpec) {
	f := &specFile{dir: d.specDir, name: name}
	// Take the identity first, so that the next lookup recognises a change during the reading.
	now := time.Now()
	st, err := r.host.Stat(f.hostPath())
	id := identify(st, err)
	f.size, f.mtime = id.size, id.mtime
	file, fault := r.files.ReadFile(d.fd, f.hostPath())
	if file == nil || !file.IsLink && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return nil, parsedSpec{}
	}
	f.isLinked = file.IsLink || st.Nlink > 1
	if file.Target != "" {
		f.targetDir, f.targetID = path.Dir(file.Target), identify(file.TargetDir, nil)
	}
	if untrusted := r.files.Check("directory", d.path, &d.st); untrusted != nil {
		fault = untrusted
	}
	switch {
	case fault != nil && errdefs.IsUnavailable(fault): // the cause can pass
	case fault == nil && int64(len(file.Data)) != id.size: // it is being written
	case id.isTooRecent(now):
	default:
		f.id = id
	}
	if fault != nil {
		return f.refuse([]*diag.Diagnostic{fault}), parsedSpec{}
	}
	text := string(file.Data)
	if r.names != nil && !mayDeclare(text, r.names) {
		return nil, parsedSpec{}
	}
	p := parseSpec(text, withRefs)
	if len(p.faults) > 0 {
		f.refuse(p.faults)
		f.rememberNames(p.kind, p.names)
		return f, p
	}
	f.spec, f.kind = p.spec, p.kind
	return f, p
}

// validateFile returns the faults and warnings of a file in the first directory.
func (r *reader) validateFile(name string, checkHost bool) (diag.List, error) {
	dir, err := r.openDir(r.dirs[0])
	if err != nil {
		return nil, err
	}
	defer dir.close()
	f, parsed := r.loadFile(dir, name, checkHost)
	if f == nil {
		return nil, fmt.Errorf("no such file: %w", errdefs.ErrNotFound)
	}
	var faults diag.List
	if f.err != nil {
		faults = diag.All("", f.err.Faults)
		if !r.opts.TrustAnyone && errdefs.IsPermissionDenied(f.err) {
			trusting := *r
			trusting.opts.TrustAnyone, trusting.files.TrustAnyone = true, true
			// An error means that the file was removed meanwhile.
			more, _ := trusting.validateFile(name, checkHost)
			return compactDiagnostics(slices.Concat(faults, more)), nil
		}
	}
	out := slices.Concat(faults, diag.List(parsed.warnings))
	for _, ref := range parsed.refs {
		isReported := slices.ContainsFunc(faults, func(d *diag.Diagnostic) bool {
			return d.Line == ref.place.Line && d.Column == ref.place.Column
		})
		if d := ref.checkHost(r.host); d != nil && !isReported {
			out = append(out, d)
		}
	}
	out.Sort()
	return compactDiagnostics(out), nil
}
