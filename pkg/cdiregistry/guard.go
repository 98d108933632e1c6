// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"errors"
	"slices"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// guard tells by one system call that nothing has changed: no event of a directory
// waits, and the paths of all directories lead where they led. For the latter it
// watches the directories on the way to each, and the mounts of this mount
// namespace, over which a path may lead elsewhere though no directory changed.
//
// It is up only in quiet times. After any event on a way, or a mount anywhere, the
// paths are looked at, as they are without it, and it is set up again: the later, the
// less often it was of use before.
type guard struct {
	// mu is held for one system call that never waits, or to set the guard up. A lookup
	// only tries for it: who does not get it looks at the paths.
	mu     sync.Mutex
	poll   int // epoll on all that follows, and on the watcher's descriptor; -1 when there is none
	ways   int // inotify on the directories on the ways
	mounts int // mountinfo of this mount namespace
	off    bool

	ids      []dirIdentity // where the paths lead; nil while the guard is not up
	watches  []int         // on ways
	calm     int           // lookups that found nothing since it was set up
	rest     int           // lookups until it is set up
	patience int           // what rest was the last time
}

// sight is what the guard knows.
type sight uint8

const (
	unknown   sight = iota // nothing
	due                    // nothing, and it is time to set the guard up
	unchanged              // nothing has happened
	announced              // events of a directory wait
)

// The descriptors in the epoll set.
const (
	guardFiles = iota
	guardWays
	guardMounts
)

const (
	// worthIt is how many lookups pay for setting the guard up.
	worthIt = 64
	// maxPatience bounds how many lookups are made without the guard.
	maxPatience = 1 << 12
)

// look tells what has happened since the guard was set up. It never waits.
func (g *guard) look(dirs []dirView) sight {
	if !g.mu.TryLock() {
		return unknown
	}
	defer g.mu.Unlock()
	switch {
	case g.off:
		return unknown
	case g.ids == nil && g.rest > 0:
		g.rest--
		return unknown
	case g.ids == nil:
		return due
	}
	for i := range dirs {
		if dirs[i].rescan || dirs[i].id != g.ids[i] {
			g.down()
			return unknown
		}
	}
	var events [3]unix.EpollEvent
	// Raw, since it never waits: the scheduler need not know of it.
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(g.poll), uintptr(unsafe.Pointer(&events)), uintptr(len(events)), 0, 0, 0)
	if errno != 0 {
		return unknown
	}
	for _, ev := range events[:n] {
		if ev.Fd != guardFiles {
			// That there was a mount is told once only: from here on nobody may trust the
			// guard until it is set up again.
			g.down()
			return unknown
		}
	}
	if n > 0 {
		return announced
	}
	g.calm++
	return unchanged
}

// down puts the guard out of use until rest lookups were made.
func (g *guard) down() {
	if g.calm >= worthIt {
		g.patience = 0
	} else {
		g.patience = min(2*g.patience+1, maxPatience)
	}
	g.ids, g.calm, g.rest = nil, 0, g.patience
}

// arm sets the guard up. What happens from here on is announced before the ways are
// walked, and a way that leads elsewhere than the registry knows is for the next
// lookup to see.
func (r *Registry) arm() {
	if !r.mu.TryLock() {
		return
	}
	defer r.mu.Unlock()
	g := &r.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.off || g.ids != nil || g.rest > 0 {
		return
	}
	ids, err := r.watchWays()
	if err != nil {
		g.down()
		g.patience, g.rest = maxPatience, maxPatience
		return
	}
	for i := range ids {
		if ids[i] != r.states[i].id {
			g.down()
			return
		}
	}
	g.ids = ids
}

// errNoGuard says that something on a way cannot be watched.
var errNoGuard = errors.New("changes on the way to a directory are not announced")

// watchWays watches all ways and gives where they lead.
func (r *Registry) watchWays() ([]dirIdentity, error) {
	g := &r.guard
	for i := range r.states {
		st := &r.states[i]
		if !st.known || st.stale || st.wd < 0 && st.id.errno != unix.ENOENT && st.id.errno != unix.ENOTDIR {
			return nil, errNoGuard
		}
	}
	if err := g.open(); err != nil {
		g.shut()
		return nil, err
	}
	if r.watch.fd >= 0 {
		err := g.add(guardFiles, r.watch.fd, unix.EPOLLIN)
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return nil, err
		}
	}
	if err := g.drain(); err != nil {
		return nil, err
	}
	ids := make([]dirIdentity, len(r.dirs))
	w := walk{inotify: g.ways, mask: wayMask}
	if _, inside := r.outside(); inside || !entersAll() {
		w.mask |= unix.IN_ATTRIB // by which a directory may be closed to us
	}
	for i, d := range r.dirs {
		var err error
		if ids[i], err = w.to(r.host.Dir(), d.path); err != nil {
			return nil, err
		}
	}
	for _, wd := range g.watches {
		if !slices.Contains(w.watches, wd) {
			_, _ = unix.InotifyRmWatch(g.ways, uint32(wd)) // it may have ended
		}
	}
	g.watches = w.watches
	return ids, nil
}

// entersAll tells that the mode of a directory does not count for this process.
func entersAll() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&header, &data[0]) == nil && data[0].Effective&(1<<unix.CAP_DAC_OVERRIDE|1<<unix.CAP_DAC_READ_SEARCH) != 0
}

// open takes the descriptors, unless they are there already.
func (g *guard) open() (err error) {
	if g.poll >= 0 {
		return nil
	}
	if g.poll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return err
	}
	if g.ways, err = unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK); err != nil {
		return err
	}
	// The thread's own: another of the process may be in another mount namespace for
	// a while.
	if g.mounts, err = unix.Open("/proc/thread-self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return err
	}
	if err := g.add(guardWays, g.ways, unix.EPOLLIN); err != nil {
		return err
	}
	return g.add(guardMounts, g.mounts, unix.EPOLLPRI)
}

func (g *guard) add(what, fd int, events uint32) error {
	return unix.EpollCtl(g.poll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(what)})
}

// drain takes what is announced already: what it is about is walked afterwards.
func (g *guard) drain() error {
	// A watch ends with its first event, so that there are few.
	hostfs.DrainInotify(g.ways, make([]byte, 4096), func(hostfs.InotifyEvent) {})
	_, err := unix.Poll([]unix.PollFd{{Fd: int32(g.mounts), Events: unix.POLLPRI}}, 0)
	return err
}

// shut gives the descriptors back.
func (g *guard) shut() {
	for _, fd := range []*int{&g.poll, &g.ways, &g.mounts} {
		if *fd >= 0 {
			unix.Close(*fd)
		}
		*fd = -1
	}
	g.ids, g.watches = nil, nil
}

// close ends the guard.
func (g *guard) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut()
	g.off = true
}
