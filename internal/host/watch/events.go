// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"errors"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// notification is a call to make after the lock is released.
type notification struct {
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
		due, failed := w.applyEvents(buf[:n])
		for _, err := range failed {
			if w.opts.Failed != nil {
				w.opts.Failed(err)
			}
		}
		for _, d := range due {
			d.watch.notify(d.name)
		}
		if len(due) == 0 && w.opts.Pause > 0 {
			time.Sleep(w.opts.Pause)
		}
	}
}

// applyEvents processes a batch of events. It returns the notifications without duplicates, and the
// reasons why directories cannot be watched.
func (w *Watcher) applyEvents(events []byte) (due []notification, failed []error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, nil
	}
	seen := make(map[notification]bool)
	add := func(x *Watch, name string) {
		if d := (notification{x, name}); !seen[d] {
			seen[d] = true
			due = append(due, d)
		}
	}
	for ev := range inotifyEvents(events) {
		if ev.Mask&unix.IN_Q_OVERFLOW != 0 {
			failed = append(failed, w.rearmBelow("/", add)...)
			continue
		}
		for _, d := range slices.Clone(w.wds[ev.WD]) {
			failed = append(failed, w.applyEvent(d, ev, add)...)
		}
	}
	return due, failed
}

// applyEvent adds the watches that an event concerns. After an event about a directory that leads to a watched file,
// it watches the new directory.
func (w *Watcher) applyEvent(d *directory, ev inotifyEvent, add func(*Watch, string)) (failed []error) {
	if ev.Mask&directoryGone != 0 {
		// The parent has an event for the new name, unless this is the root, or the new
		// name appeared before this event was read.
		return w.rearmBelow(d.path, add)
	}
	name := string(ev.Name)
	for _, x := range d.watches {
		if (x.name == name || x.name == "") && x.wantsEvent(ev.Mask) {
			add(x, name)
		}
	}
	if below := path.Join(d.path, name); name != "" && w.dirs[below] != nil &&
		ev.Mask&(unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_MOVED_FROM) != 0 {
		return w.rearmBelow(below, add)
	}
	return nil
}

func (x *Watch) wantsEvent(mask uint32) bool {
	return mask&(always|x.mask) != 0 && (mask&unix.IN_MOVED_FROM == 0 || x.mask&Removed != 0)
}

// rearmBelow watches a directory and everything below it again. It notifies every watch there,
// because earlier changes caused no events. A directory that is missing now causes an event when it
// appears, because its parent is watched first. The errors concern directories that cannot be
// watched.
func (w *Watcher) rearmBelow(dir string, add func(*Watch, string)) (failed []error) {
	for _, p := range slices.Sorted(maps.Keys(w.dirs)) {
		d := w.dirs[p]
		if d.path != dir && dir != "/" && !strings.HasPrefix(d.path, dir+"/") {
			continue
		}
		if err := w.armDirectory(d); err != nil {
			failed = append(failed, err)
		}
		for _, x := range d.watches {
			add(x, x.name)
		}
	}
	return failed
}
