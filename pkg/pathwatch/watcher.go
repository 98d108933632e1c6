// SPDX-License-Identifier: Apache-2.0

package pathwatch

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

// Options change how a Watcher works. The zero value is for directories that
// nobody else can write.
type Options struct {
	// Patience is how long the watcher rests after events of which none was about
	// a name it watches, so that somebody who fills a directory costs little. What
	// the kernel cannot keep meanwhile ends in an overflow, after which everything
	// is looked at.
	Patience time.Duration
	// Failed, when not nil, is called with what could not be watched any more.
	Failed func(error)
}

// Watcher watches paths. It is safe for concurrent use.
type Watcher struct {
	host hostfs.Root
	opts Options
	file *os.File // the inotify descriptor, non-blocking, in the runtime's poller
	fd   int
	done chan struct{}

	mu   sync.Mutex
	root *node
	wds  map[int32][]*node // two nodes share one when they are one directory
	shut bool
}

// node is one directory on the way to something watched.
type node struct {
	parent   *node
	name     string // in the parent; "" for the root
	path     string
	wd       int32 // -1 while it does not exist or cannot be watched
	mask     uint32
	children map[string]*node
	names    map[string][]*Watch // "" is every name
}

// Watch is one path that is watched.
type Watch struct {
	w    *Watcher
	n    *node
	name string
	mask uint32
	tell func(name string)
}

// What can be watched for besides what becomes of names.
const (
	Attributes = unix.IN_ATTRIB      // mode, owner, ACL and link count of what is in the directory
	Written    = unix.IN_CLOSE_WRITE // a file of the directory was written and closed
	Removed    = unix.IN_DELETE      // names that are no more, also those renamed away
)

const always = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR

// lost are the events after which a directory is not where it was.
const lost = unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_IGNORED | unix.IN_UNMOUNT

// New makes a watcher of paths below the host root.
func New(host hostfs.Root, opts Options) (*Watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make inotify descriptor: %w", err)
	}
	w := &Watcher{host: host, opts: opts, file: os.NewFile(uintptr(fd), "inotify"), fd: fd,
		done: make(chan struct{}), wds: make(map[int32][]*node)}
	w.root = &node{path: "/", wd: -1}
	go w.run()
	return w, nil
}

// Close ends the watcher. No call of tell is under way when it returns, so it must
// not be called by one.
func (w *Watcher) Close() error {
	w.mu.Lock()
	w.shut = true
	w.mu.Unlock()
	err := w.file.Close()
	<-w.done
	return err
}

// Add watches name in dir, a clean absolute host path without a symlink, which
// need not exist. The name "" stands for every name in it. tell is called, on the
// watcher's one goroutine and with no lock of it held, with the name that may have
// changed, or with "" when everything may have.
//
// The error tells that the kernel watches no more; the watch is kept then, and
// tells what the directories above do.
func (w *Watcher) Add(dir, name string, mask uint32, tell func(name string)) (*Watch, error) {
	if path.Clean(dir) != dir || !path.IsAbs(dir) || strings.Contains(name, "/") {
		return nil, fmt.Errorf("watch %q in %q: want a clean absolute path and a name: %w", name, dir, errdefs.ErrInvalidArgument)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.shut {
		return nil, os.ErrClosed
	}
	n := w.root
	err := w.arm(n)
	for elem := range strings.SplitSeq(strings.TrimPrefix(dir, "/"), "/") {
		if elem == "" {
			continue
		}
		c := n.children[elem]
		if c == nil {
			c = &node{parent: n, name: elem, path: path.Join(n.path, elem), wd: -1}
			if n.children == nil {
				n.children = make(map[string]*node)
			}
			n.children[elem] = c
		}
		n = c
		if n.wd < 0 {
			if e := w.arm(n); e != nil {
				err = e
			}
		}
	}
	if n.names == nil {
		n.names = make(map[string][]*Watch)
	}
	watch := &Watch{w: w, n: n, name: name, mask: mask, tell: tell}
	n.names[name] = append(n.names[name], watch)
	if mask&^n.mask != 0 {
		n.mask |= mask
		if n.wd >= 0 {
			err = w.arm(n)
		}
	}
	return watch, err
}

// Stop ends a watch. A call of tell that has begun may still be under way.
func (x *Watch) Stop() {
	w := x.w
	w.mu.Lock()
	defer w.mu.Unlock()
	n := x.n
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
		w.disarm(n)
		delete(n.parent.children, n.name)
		n = n.parent
	}
}

// arm watches the directory that the node's path leads to now. A directory that
// does not exist, or that is a symlink, is watched when its name appears.
func (w *Watcher) arm(n *node) error {
	f, err := w.host.OpenNoSymlinks(n.path, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		w.disarm(n)
		if errdefs.IsNotFound(err) || errdefs.IsPermissionDenied(err) {
			return nil
		}
		return fmt.Errorf("watch directory: %w", err)
	}
	defer f.Close()
	// By way of the descriptor, it is this very directory.
	wd, err := unix.InotifyAddWatch(w.fd, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), always|n.mask|unix.IN_MASK_ADD)
	if err != nil {
		w.disarm(n)
		return fmt.Errorf("watch directory %q: %w (fs.inotify.max_user_watches bounds how many)", n.path, err)
	}
	if n.wd != int32(wd) {
		w.disarm(n)
		n.wd = int32(wd)
		w.wds[n.wd] = append(w.wds[n.wd], n)
	}
	return nil
}

func (w *Watcher) disarm(n *node) {
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
		_, _ = unix.InotifyRmWatch(w.fd, uint32(n.wd)) // gone by itself with the directory
	}
	n.wd = -1
}
