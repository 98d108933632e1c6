// SPDX-License-Identifier: Apache-2.0

package fswatch

import (
	"fmt"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// Options change how a Watcher works. The zero value is for directories that only trusted
// users can write.
type Options struct {
	// Pause is how long the watcher sleeps after events of which none concerned a watched
	// name. A user who fills a watched directory then costs little CPU. When the kernel's
	// queue overflows meanwhile, all watches are notified.
	Pause time.Duration
	// Failed, when not nil, is called with the error when a directory cannot be watched any
	// more.
	Failed func(error)
}

// Watcher reports that what a path leads to may have changed: the last name, or any
// directory on the way to it, was created, removed, renamed or replaced. A change that
// happened after [Watcher.Add] returned is reported at least once. It follows no symlink.
// It uses one inotify descriptor for all paths, and is safe for concurrent use.
//
// A file system that is mounted over a directory on the way is not noticed: inotify has no
// event for it.
type Watcher struct {
	host hostfs.Root
	opts Options
	file *os.File // the inotify descriptor, non-blocking, in the runtime's poller
	fd   int
	done chan struct{}

	mu     sync.Mutex
	root   *node
	wds    map[int32][]*node // two nodes share a watch descriptor when they are one directory
	closed bool
}

// node is one directory on the way to a watched name.
type node struct {
	parent   *node
	name     string // in the parent; "" for the root
	path     string
	wd       int32 // -1 while it does not exist or cannot be watched
	mask     uint32
	children map[string]*node
	names    map[string][]*Watch // "" stands for every name
}

// Watch is one watched path.
type Watch struct {
	watcher *Watcher
	node    *node
	name    string
	mask    uint32
	notify  func(name string)
}

// What a Watch can report besides names that appear.
const (
	Attributes = unix.IN_ATTRIB      // mode, owner, ACL or link count of an entry changed
	Written    = unix.IN_CLOSE_WRITE // a file of the directory was written and closed
	Removed    = unix.IN_DELETE      // names that were removed or renamed away
)

const always = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR

// directoryGone are the events after which a directory is not at its path any more.
const directoryGone = unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_IGNORED | unix.IN_UNMOUNT

// New returns a watcher of paths below the host root.
func New(host hostfs.Root, opts Options) (*Watcher, error) {
	fd, err := openInotify()
	if err != nil {
		return nil, err
	}
	w := &Watcher{host: host, opts: opts, file: os.NewFile(uintptr(fd), "inotify"), fd: fd,
		done: make(chan struct{}), wds: make(map[int32][]*node)}
	w.root = newNode(nil, "", "/")
	go w.run()
	return w, nil
}

// Close ends the watcher. No call of a notify function is running when it returns, so it
// must not be called by one.
func (w *Watcher) Close() error {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	err := w.file.Close()
	<-w.done
	return err
}

// Add watches name in dir, a clean absolute host path without a symlink, which need not
// exist. The name "" stands for every name in dir. The watcher's goroutine calls notify,
// holding no lock, with the name that may have changed, or with "" when every name may have.
//
// When the kernel allows no more watches, Add returns the watch and an error: the watch then
// reports only what the directories above do.
func (w *Watcher) Add(dir, name string, mask uint32, notify func(name string)) (*Watch, error) {
	if path.Clean(dir) != dir || !path.IsAbs(dir) || strings.Contains(name, "/") {
		return nil, errdefs.ErrInvalidArgument.WithMessage(fmt.Sprintf("watch %q in %q: want a clean absolute path and a name", name, dir))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, os.ErrClosed
	}
	n := w.root
	onTheWay := []*node{n}
	for elem := range strings.SplitSeq(strings.TrimPrefix(dir, "/"), "/") {
		if elem != "" {
			n = n.childNode(elem)
			onTheWay = append(onTheWay, n)
		}
	}
	watch := &Watch{watcher: w, node: n, name: name, mask: mask, notify: notify}
	n.names[name] = append(n.names[name], watch)
	widened := mask&^n.mask != 0
	n.mask |= mask
	var err error
	for _, d := range onTheWay {
		if d.wd < 0 || d == n && widened {
			if e := w.armNode(d); e != nil {
				err = e
			}
		}
	}
	return watch, err
}

// childNode returns the node of a directory in n, which is not watched yet if it is new.
func (n *node) childNode(name string) *node {
	c := n.children[name]
	if c == nil {
		c = newNode(n, name, path.Join(n.path, name))
		n.children[name] = c
	}
	return c
}

func newNode(parent *node, name, path string) *node {
	return &node{parent: parent, name: name, path: path, wd: -1, children: make(map[string]*node), names: make(map[string][]*Watch)}
}

// Stop ends a watch. A call of its notify function may still be running.
func (x *Watch) Stop() {
	w, n := x.watcher, x.node
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return // its descriptor may be another's by now
	}
	list := n.names[x.name]
	for i, o := range list {
		if o == x {
			list = append(list[:i:i], list[i+1:]...)
			break
		}
	}
	if n.names[x.name] = list; len(list) == 0 {
		delete(n.names, x.name)
	}
	for n != w.root && len(n.names) == 0 && len(n.children) == 0 {
		w.disarmNode(n)
		delete(n.parent.children, n.name)
		n = n.parent
	}
}

// armNode watches the directory that the node's path leads to now. A directory that does not
// exist, or that is a symlink, is watched when its name appears.
func (w *Watcher) armNode(n *node) error {
	fd, err := w.host.OpenNoSymlinks(n.path, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		w.disarmNode(n)
		if errdefs.IsNotFound(err) || errdefs.IsPermissionDenied(err) {
			return nil
		}
		return fmt.Errorf("watch directory: %w", err)
	}
	defer unix.Close(fd)
	wd, err := addWatch(w.fd, fd, always|n.mask|unix.IN_MASK_ADD)
	if err != nil {
		w.disarmNode(n)
		return fmt.Errorf("watch directory %q: %w (fs.inotify.max_user_watches limits how many a user has)", n.path, err)
	}
	if n.wd != int32(wd) {
		w.disarmNode(n)
		n.wd = int32(wd)
		w.wds[n.wd] = append(w.wds[n.wd], n)
	}
	return nil
}

func (w *Watcher) disarmNode(n *node) {
	if n.wd < 0 {
		return
	}
	list := w.wds[n.wd]
	for i, o := range list {
		if o == n {
			list = append(list[:i:i], list[i+1:]...)
			break
		}
	}
	if len(list) > 0 {
		w.wds[n.wd] = list
	} else {
		delete(w.wds, n.wd)
		_, _ = unix.InotifyRmWatch(w.fd, uint32(n.wd)) // the kernel may have ended the watch
	}
	n.wd = -1
}
