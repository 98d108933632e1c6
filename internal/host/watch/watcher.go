// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// Options modify a Watcher. The zero value is meant for directories that only trusted users can
// write.
type Options struct {
	// Pause is the time that the watcher sleeps after events that concern no watched name. It
	// bounds the CPU time that a user can cause by filling a watched directory. If the kernel's
	// queue overflows meanwhile, all watches are notified.
	Pause time.Duration
	// Failed, if not nil, is called with the error when a directory can no longer be watched. The
	// watcher's goroutine calls it without holding a lock.
	Failed func(error)
}

// Watcher reports that a watched path may have changed: the last name, or any directory on the
// path, was created, removed, renamed or replaced. It reports every change after [Watcher.Add]
// returned at least once. It follows no symlink. It uses one inotify descriptor for all paths, and
// is safe for concurrent use.
//
// It does not detect a mount over a directory on the path, because inotify has no event for that.
type Watcher struct {
	host hostfs.Root
	opts Options
	file *os.File // the inotify descriptor, non-blocking, in the runtime's poller
	fd   int
	done chan struct{}

	mu     sync.Mutex
	dirs   map[string]*directory  // by path
	wds    map[int32][]*directory // two paths of one directory share a watch descriptor
	closed bool
}

// directory is a directory on the path to a watched name.
type directory struct {
	path    string
	users   int   // number of watches in it or below it
	wd      int32 // -1 while it does not exist or cannot be watched
	mask    uint32
	watches []*Watch // in the directory itself
}

// Watch is one watched path.
type Watch struct {
	watcher *Watcher
	dir     string
	name    string // "" stands for every name
	mask    uint32
	notify  func(name string)
}

// The events that a Watch can report in addition to new names.
const (
	Attributes = unix.IN_ATTRIB      // mode, owner, ACL or link count of an entry changed
	Written    = unix.IN_CLOSE_WRITE // a file of the directory was written and closed
	Removed    = unix.IN_DELETE      // names that were removed or renamed away
)

const always = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF |
	unix.IN_ONLYDIR

// directoryGone are the events after which the directory is no longer at its path.
const directoryGone = unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_IGNORED | unix.IN_UNMOUNT

// New returns a watcher of paths below the host root.
func New(host hostfs.Root, opts Options) (*Watcher, error) {
	fd, err := openInotify()
	if err != nil {
		return nil, err
	}
	w := &Watcher{host: host, opts: opts, file: os.NewFile(uintptr(fd), "inotify"), fd: fd,
		done: make(chan struct{}), dirs: make(map[string]*directory), wds: make(map[int32][]*directory)}
	go w.run()
	return w, nil
}

// Close ends the watcher. When it returns, no notify function is running, so a notify function must
// not call it.
func (w *Watcher) Close() error {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	err := w.file.Close()
	<-w.done
	return err
}

// Add watches name in dir, a clean absolute host path without symlinks, which need not exist. The
// name "" stands for every name in dir. The watcher's goroutine calls notify without holding a
// lock, with the name that may have changed, or with "" if every name may have changed.
//
// A file system that is unresponsive during Add delays that call, but no other watch.
//
// If the kernel allows no more watches, Add returns the watch and an error. The watch then reports
// only changes of the parent directories.
func (w *Watcher) Add(dir, name string, mask uint32, notify func(name string)) (*Watch, error) {
	if path.Clean(dir) != dir || !path.IsAbs(dir) || strings.Contains(name, "/") {
		return nil, errdefs.ErrInvalidArgument.WithMessage(fmt.Sprintf("watch %q in %q: must be a clean absolute "+
			"path and a name", name, dir))
	}
	// An unresponsive file system blocks here, before the lock that all other watches need.
	if fd, err := w.host.OpenNoSymlinks(dir, unix.O_PATH|unix.O_DIRECTORY); err == nil {
		unix.Close(fd)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, os.ErrClosed
	}
	watch := &Watch{watcher: w, dir: dir, name: name, mask: mask, notify: notify}
	var err error
	for _, p := range pathsTo(dir) {
		d := w.dirs[p]
		if d == nil {
			d = &directory{path: p, wd: -1}
			w.dirs[p] = d
		}
		d.users++
		widened := p == dir && mask&^d.mask != 0
		if p == dir {
			d.mask |= mask
			d.watches = append(d.watches, watch)
		}
		if d.wd < 0 || widened {
			err = cmp.Or(w.armDirectory(d), err)
		}
	}
	return watch, err
}

// pathsTo returns the directories on the path to a directory, from / to the directory itself.
func pathsTo(dir string) []string {
	paths := []string{dir}
	for dir != "/" {
		dir = path.Dir(dir)
		paths = append(paths, dir)
	}
	slices.Reverse(paths)
	return paths
}

// Stop ends a watch. Its notify function can still be running.
func (x *Watch) Stop() {
	w := x.watcher
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return // its descriptor may belong to another watch by now
	}
	for _, p := range pathsTo(x.dir) {
		d := w.dirs[p]
		if p == x.dir {
			d.watches = slices.DeleteFunc(d.watches, func(o *Watch) bool { return o == x })
		}
		if d.users--; d.users == 0 {
			w.disarmDirectory(d)
			delete(w.dirs, p)
		}
	}
}

// armDirectory watches the directory at a path. A directory that does not exist, or is a symlink,
// is watched once its name appears.
func (w *Watcher) armDirectory(d *directory) error {
	fd, err := w.host.OpenNoSymlinks(d.path, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		w.disarmDirectory(d)
		if errdefs.IsNotFound(err) || errdefs.IsPermissionDenied(err) {
			return nil
		}
		return fmt.Errorf("watch directory: %w", err)
	}
	defer unix.Close(fd)
	wd, err := unix.InotifyAddWatch(w.fd, hostfs.DescriptorPath(fd), always|d.mask|unix.IN_MASK_ADD)
	if err != nil {
		w.disarmDirectory(d)
		return fmt.Errorf("watch directory %q: %w (fs.inotify.max_user_watches limits how many a user has)", d.path,
			err)
	}
	if d.wd != int32(wd) {
		w.disarmDirectory(d)
		d.wd = int32(wd)
		w.wds[d.wd] = append(w.wds[d.wd], d)
	}
	return nil
}

// disarmDirectory ends the watch of a directory. Two paths can lead to one directory, which inotify watches once.
func (w *Watcher) disarmDirectory(d *directory) {
	if d.wd < 0 {
		return
	}
	others := slices.DeleteFunc(w.wds[d.wd], func(o *directory) bool { return o == d })
	if w.wds[d.wd] = others; len(others) == 0 {
		delete(w.wds, d.wd)
		_, _ = unix.InotifyRmWatch(w.fd, uint32(d.wd)) // the kernel may have ended the watch
	}
	d.wd = -1
}
