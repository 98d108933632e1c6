// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// holders prepares containers of sandboxes of their own that hold one socket, and says
// where.
func (n *node) holders(count int, rel, at string) (targets []string) {
	n.t.Helper()
	for i := range count {
		id := fmt.Sprint("c", i)
		must(n.t, n.Prepare(one(id, fmt.Sprint("s", i), rel)))
		targets = append(targets, n.in(id, at))
	}
	return targets
}

func TestAThousandRestartsLeaveAsManyMounts(t *testing.T) {
	n := newNode(t)
	last := n.listen("run/vsw/p1/a.sock", "0")
	targets := n.holders(3, "p1/a.sock", "net/net1/a.sock")
	count := func() int {
		e, err := os.ReadDir("/proc/self/fd")
		must(t, err)
		return len(e)
	}
	mounts, fds := n.mounts(), count()
	restarts := 1000
	if testing.Short() {
		restarts = 100
	}
	for i := range restarts {
		last.Close()
		last = n.listen("run/vsw/p1/a.sock", fmt.Sprint(i+1))
		n.answers(targets[i%3], fmt.Sprint(i+1))
		if t.Failed() {
			return
		}
	}
	for _, at := range targets {
		n.answers(at, fmt.Sprint(restarts))
	}
	n.Store.mu.Lock() // a binding is under way until all have it
	after := n.mounts()
	n.Store.mu.Unlock()
	slices.Sort(after)
	slices.Sort(mounts)
	if !slices.Equal(after, mounts) {
		t.Errorf("mounts %v, before %v", after, mounts)
	}
	n.eventually(func() bool { return count() <= fds+4 }, fmt.Sprintf("more than %d descriptors, and some for connections that are being answered", fds))
	if f := n.events.failures(); len(f) > 0 {
		t.Errorf("failures: %v", f)
	}
}

// The kernel tells in which order it attaches and detaches mounts.
func TestOneIsBoundAfterTheOther(t *testing.T) {
	const (
		reportMnt, markMntns = 0x4000, 0x110 // Linux 6.15
		attached, detached   = 0x1000000, 0x2000000
	)
	n := newNode(t)
	n.listen("run/vsw/p1/a.sock", "first")
	targets := n.holders(10, "p1/a.sock", "net/net1/a.sock")
	fan, err := unix.FanotifyInit(reportMnt|unix.FAN_NONBLOCK|unix.FAN_CLOEXEC, 0)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		t.Skip("skipped: the kernel does not tell of mounts (Linux 6.15 does)")
	}
	must(t, err)
	defer unix.Close(fan)
	ns, err := os.Open("/proc/thread-self/ns/mnt")
	must(t, err)
	defer ns.Close()
	must(t, unix.FanotifyMark(fan, unix.FAN_MARK_ADD|markMntns, attached|detached, int(ns.Fd()), ""))
	n.listen("run/vsw/p1/a.sock", "second")
	for _, at := range targets {
		n.answers(at, "second")
	}
	n.Store.mu.Lock()
	defer n.Store.mu.Unlock()
	var order []byte
	buf := make([]byte, 64<<10)
	for {
		k, err := unix.Read(fan, buf)
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		must(t, err)
		for b := buf[:k]; len(b) >= int(unsafe.Sizeof(unix.FanotifyEventMetadata{})); b = b[binary.NativeEndian.Uint32(b):] {
			switch mask := binary.NativeEndian.Uint64(b[8:]); {
			case mask&attached != 0:
				order = append(order, '+')
			case mask&detached != 0:
				order = append(order, '-')
			}
		}
	}
	if want := strings.Repeat("+-", 10); string(order) != want {
		t.Errorf("mounted and taken away as %s, want %s", order, want)
	}
}

// A process is killed, twice, when it has mounted the new socket and not taken the
// old one away.
func TestWhatAKilledProcessMountedIsTakenAway(t *testing.T) {
	n := newNode(t)
	n.listen("run/vsw/p1/a.sock", "first")
	targets := n.holders(3, "p1/a.sock", "net/net1/a.sock")
	must(t, n.Close())
	n.listen("run/vsw/p1/a.sock", "second")
	fd, err := unix.Open(n.path("run/vsw/p1/a.sock"), unix.O_PATH|unix.O_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fd)
	must(t, swap(fd, targets[0]))
	for range 2 {
		covered, err := slip(fd, targets[1])
		must(t, err)
		if !covered {
			t.Skip("skipped: the kernel cannot mount beneath (Linux 6.5 can)")
		}
	}
	if got, err := ask(targets[1]); got == "second" {
		t.Errorf("answers %q, %v: it is not covered", got, err)
	}
	if err := os.Remove(n.path("run/vsw/p1/a.sock")); !errors.Is(err, unix.EBUSY) {
		t.Fatalf("a socket that is mounted on: %v", err)
	}
	n.open(Options{Mode: Mounts, Watch: true})
	all := func(string) bool { return true }
	must(t, n.Retain(all, all))
	for _, at := range targets {
		n.answers(at, "second")
	}
	n.Store.mu.Lock()
	got := n.mounts()
	n.Store.mu.Unlock()
	if len(got) != 3 {
		t.Errorf("mounts: %v", got)
	}
	must(t, os.Remove(n.path("run/vsw/p1/a.sock"))) // nothing is mounted on it any more
}

// A look at the host that takes long finds a socket that is none any more when it
// comes to binding it.
func TestWhatIsGoneIsNotBound(t *testing.T) {
	n := newNode(t)
	n.listen("run/vsw/p1/a.sock", "first")
	fd, err := unix.Open(n.path("run/vsw/p1/a.sock"), unix.O_PATH|unix.O_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fd)
	st, err := isSocket(fd, "a.sock")
	must(t, err)
	n.listen("run/vsw/p1/a.sock", "second")
	targets := n.holders(3, "p1/a.sock", "net/net1/a.sock")
	n.Store.mu.Lock()
	src := n.sources["/run/vsw/p1/a.sock"]
	k, err := n.renewWith(src, fd, &st)
	n.Store.mu.Unlock()
	if k != 0 || err == nil {
		t.Errorf("bound %d, %v", k, err)
	}
	for _, at := range targets {
		if got, err := ask(at); got != "second" {
			t.Errorf("answers %q, %v, want second", got, err)
		}
	}
	if got := n.mounts(); len(got) != 3 {
		t.Errorf("mounts: %v", got)
	}
}
