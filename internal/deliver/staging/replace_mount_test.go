// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
)

// stageContainers stages containers of different sandboxes with one socket, and returns its paths in them.
func (n *node) stageContainers(count int, rel, at string) (targets []string) {
	n.t.Helper()
	for i := range count {
		id := fmt.Sprint("c", i)
		testkit.Must(n.t, n.Prepare(newContainer(id, fmt.Sprint("s", i), rel)))
		targets = append(targets, n.stagedPath(id, at))
	}
	return targets
}

func TestThousandRestartsLeaveOneMountEach(t *testing.T) {
	n := newNode(t)
	last := n.listen("run/vsw/p1/a.sock", "0")
	targets := n.stageContainers(3, "p1/a.sock", "net/net1/a.sock")
	count := func() int {
		e, err := os.ReadDir("/proc/self/fd")
		testkit.Must(t, err)
		return len(e)
	}
	container := n.startContainer()
	mounts, fds := n.mounts(), count()
	if got := n.mountsOf(container); len(got) != len(mounts) {
		t.Fatalf("the container has the mounts %v, want %v", got, mounts)
	}
	restarts := 1000
	if testing.Short() {
		restarts = 100
	}
	for i := range restarts {
		last.Close()
		last = n.listen("run/vsw/p1/a.sock", fmt.Sprint(i+1))
		n.wantAnswer(targets[i%3], fmt.Sprint(i+1))
		if t.Failed() {
			return
		}
	}
	for _, at := range targets {
		n.wantAnswer(at, fmt.Sprint(restarts))
	}
	n.lock.mu.Lock() // rebinding holds the lock until all containers have the socket
	after, inContainer := n.mounts(), n.mountsOf(container)
	n.lock.mu.Unlock()
	slices.Sort(mounts)
	for _, got := range [][]string{after, inContainer} {
		if slices.Sort(got); !slices.Equal(got, mounts) {
			t.Errorf("mounts %v, before %v", got, mounts)
		}
	}
	n.waitUntil(func() bool { return count() <= fds+4 }, fmt.Sprintf("more than %d descriptors, and some for connections that are being answered", fds))
	if f := n.events.failures(); len(f) > 0 {
		t.Errorf("failures: %v", f)
	}
}

// The kernel reports the order in which it attaches and detaches mounts. While an old mount is above
// a new one, nobody can unlink the socket.
func TestFewMountsAreReplacedAtATime(t *testing.T) {
	const (
		containers           = 3 * maxCovered
		reportMnt, markMntns = 0x4000, 0x110 // Linux 6.15
		attached, detached   = 0x1000000, 0x2000000
	)
	n := newNode(t)
	n.listen("run/vsw/p1/a.sock", "first")
	targets := n.stageContainers(containers, "p1/a.sock", "net/net1/a.sock")
	fan, err := unix.FanotifyInit(reportMnt|unix.FAN_NONBLOCK|unix.FAN_CLOEXEC, 0)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		t.Skip("skipped: the kernel does not report mounts (Linux 6.15 does)")
	}
	testkit.Must(t, err)
	defer unix.Close(fan)
	ns, err := os.Open("/proc/thread-self/ns/mnt")
	testkit.Must(t, err)
	defer ns.Close()
	testkit.Must(t, unix.FanotifyMark(fan, unix.FAN_MARK_ADD|markMntns, attached|detached, int(ns.Fd()), ""))
	n.listen("run/vsw/p1/a.sock", "second")
	for _, at := range targets {
		n.wantAnswer(at, "second")
	}
	n.lock.mu.Lock()
	defer n.lock.mu.Unlock()
	var order []byte
	buf := make([]byte, 64<<10)
	for {
		k, err := unix.Read(fan, buf)
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		testkit.Must(t, err)
		for b := buf[:k]; len(b) >= int(unsafe.Sizeof(unix.FanotifyEventMetadata{})); b = b[binary.NativeEndian.Uint32(b):] {
			switch mask := binary.NativeEndian.Uint64(b[8:]); {
			case mask&attached != 0:
				order = append(order, '+')
			case mask&detached != 0:
				order = append(order, '-')
			}
		}
	}
	covered := 0
	for _, event := range order {
		if covered--; event == '+' {
			covered += 2
		}
		if covered < 0 || covered > maxCovered {
			break
		}
	}
	if len(order) != 2*containers || covered != 0 {
		t.Errorf("mounted and unmounted as %s, want %d of each and at most %d old mounts above new ones", order, containers, maxCovered)
	}
}

// A process is killed twice after mounting the new socket at one place and before unmounting the old
// one, the second time after mounting it at another place, too.
func TestInterruptedSwapsAreFinished(t *testing.T) {
	n := newNode(t)
	n.listen("run/vsw/p1/a.sock", "first")
	targets := n.stageContainers(3, "p1/a.sock", "net/net1/a.sock")
	testkit.Must(t, n.Close())
	n.listen("run/vsw/p1/a.sock", "second")
	fd, err := unix.Open(n.path("run/vsw/p1/a.sock"), unix.O_PATH|unix.O_CLOEXEC, 0)
	testkit.Must(t, err)
	defer unix.Close(fd)
	_, err = replaceMounts(fd, []bindPlace{{target: targets[0]}})
	testkit.Must(t, err)
	last := noMount
	for _, place := range []struct {
		target string
		isPeer bool
	}{{targets[1], false}, {targets[1], false}, {targets[2], true}} {
		if !place.isPeer {
			last = noMount
		}
		tree, covered, err := mountBeneath(fd, last, place.target)
		testkit.Must(t, err)
		defer unix.Close(tree)
		if !covered {
			t.Skip("skipped: the kernel cannot mount beneath (Linux 6.5 can)")
		}
		last = tree
	}
	if got, err := readSocket(targets[1]); got == "second" {
		t.Errorf("answer %q, %v: the old socket does not cover the new one", got, err)
	}
	if err := os.Remove(n.path("run/vsw/p1/a.sock")); !errors.Is(err, unix.EBUSY) {
		t.Fatalf("remove a socket that is a mount point: %v", err)
	}
	n.open(Options{Mode: ModeMount, Watch: true})
	all := func(string) bool { return true }
	testkit.Must(t, n.Retain(time.Time{}, all, all))
	for _, at := range targets {
		n.wantAnswer(at, "second")
	}
	n.lock.mu.Lock()
	got := n.mounts()
	n.lock.mu.Unlock()
	if len(got) != 3 {
		t.Errorf("mounts: %v", got)
	}
	testkit.Must(t, os.Remove(n.path("run/vsw/p1/a.sock"))) // it is no mount point any more
}

// A slow check of the host finds a socket that is unlinked before it is bound.
func TestUnlinkedSocketIsNotBound(t *testing.T) {
	n := newNode(t)
	n.listen("run/vsw/p1/a.sock", "first")
	fd, err := unix.Open(n.path("run/vsw/p1/a.sock"), unix.O_PATH|unix.O_CLOEXEC, 0)
	testkit.Must(t, err)
	defer unix.Close(fd)
	n.listen("run/vsw/p1/a.sock", "second")
	targets := n.stageContainers(3, "p1/a.sock", "net/net1/a.sock")
	n.lock.mu.Lock()
	src := n.tracker.sockets["/run/vsw/p1/a.sock"]
	k, err := n.tracker.rebinder.rebindAll(src, fd, n.sockets.dirs.Claimants(src.socket.HostPath()))
	n.lock.mu.Unlock()
	if k.containers != 0 || err == nil {
		t.Errorf("bound %+v, error %v", k, err)
	}
	for _, at := range targets {
		if got, err := readSocket(at); got != "second" {
			t.Errorf("answer %q, %v, want second", got, err)
		}
	}
	if got := n.mounts(); len(got) != 3 {
		t.Errorf("mounts: %v", got)
	}
}
