// SPDX-License-Identifier: Apache-2.0

package pathwatch

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// telling is one call to make once the lock is free.
type telling struct {
	watch *Watch
	name  string
}

func (w *Watcher) run() {
	defer close(w.done)
	buf := make([]byte, 64<<10)
	for {
		n, err := w.file.Read(buf)
		if err != nil {
			if errors.Is(err, unix.EINTR) {
				continue
			}
			return // closed
		}
		tell := w.apply(buf[:n])
		for _, t := range tell {
			t.watch.tell(t.name)
		}
		if len(tell) == 0 && w.opts.Patience > 0 {
			time.Sleep(w.opts.Patience)
		}
	}
}

// apply takes in a batch of events and gives whom to tell of what, each once.
func (w *Watcher) apply(events []byte) []telling {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.shut {
		return nil
	}
	var out []telling
	seen := make(map[telling]bool)
	tell := func(x *Watch, name string) {
		if t := (telling{x, name}); !seen[t] {
			seen[t] = true
			out = append(out, t)
		}
	}
	for ev := range hostfs.InotifyEvents(events) {
		if ev.Mask&unix.IN_Q_OVERFLOW != 0 {
			w.again(w.root, tell)
			continue
		}
		for _, n := range w.wds[ev.WD] {
			w.event(n, ev.Mask, ev.Name, tell)
		}
	}
	return out
}

func (w *Watcher) event(n *node, mask uint32, name []byte, tell func(*Watch, string)) {
	if mask&lost != 0 {
		// Whoever replaced it did so by a name in its parent, of which there is an
		// event; but for the root, and for what was replaced before that was read.
		w.again(n, tell)
		return
	}
	for _, x := range n.names[string(name)] {
		if mask&(always|x.mask) != 0 && (mask&unix.IN_MOVED_FROM == 0 || x.mask&Removed != 0) {
			tell(x, x.name)
		}
	}
	if len(name) > 0 {
		for _, x := range n.names[""] {
			if mask&(always|x.mask) != 0 && (mask&unix.IN_MOVED_FROM == 0 || x.mask&Removed != 0) {
				tell(x, string(name))
			}
		}
	}
	if mask&(unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_MOVED_FROM) != 0 {
		if c := n.children[string(name)]; c != nil {
			w.again(c, tell)
		}
	}
}

// again watches the directories from n on anew, and tells everyone below, since
// what came before the watch was there has no event.
func (w *Watcher) again(n *node, tell func(*Watch, string)) {
	if err := w.arm(n); err != nil && w.opts.Failed != nil {
		w.opts.Failed(err)
	}
	for name, list := range n.names {
		for _, x := range list {
			tell(x, name)
		}
	}
	for _, c := range n.children {
		w.again(c, tell)
	}
}
