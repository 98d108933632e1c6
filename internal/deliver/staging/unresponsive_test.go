// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/edit"
)

// mountUnresponsive mounts a file system that never answers, until the test ends or release is called.
func (n *node) mountUnresponsive(p string) (release func()) {
	n.t.Helper()
	testkit.Must(n.t, os.MkdirAll(n.path(p), 0o755))
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err == nil {
		err = unix.Mount("unresponsive", n.path(p), "fuse", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("fd=%d,rootmode=40755,user_id=0,group_id=0,allow_other", fd))
	}
	if err != nil && os.Getenv("CI") == "true" {
		n.t.Fatalf("cannot mount FUSE, and CI promises that it can: %v", err)
	} else if err != nil {
		n.t.Skipf("skipped: cannot mount FUSE: %v", err)
	}
	done := false
	release = func() {
		if !done {
			done = true
			unix.Close(fd) // every call that waits ends
			_ = unix.Unmount(n.path(p), unix.MNT_DETACH)
		}
	}
	n.t.Cleanup(release)
	return release
}

// wantEnd waits until work ends.
func (n *node) wantEnd(what string, work func() error) {
	n.t.Helper()
	done := make(chan error, 1)
	go func() { done <- work() }()
	select {
	case err := <-done:
		if err != nil {
			n.t.Errorf("%s: %v", what, err)
		}
	case <-time.After(testkit.Hangs):
		n.t.Fatalf("%s: waits for the file system", what)
	}
}

// A socket root is unresponsive when the process starts. Containers with sockets elsewhere are removed, and
// others are created.
func TestUnresponsiveRootBlocksNoOtherContainer(t *testing.T) {
	n := newNode(t)
	n.listen("run/vsw/p1/a.sock", "host")
	n.listen("run/vsw/hung/deep/b.sock", "hung")
	testkit.Must(t, n.Prepare(newContainer("c1", "s1", "p1/a.sock")))
	testkit.Must(t, n.Prepare(newContainer("c2", "s2", "hung/deep/b.sock")))
	testkit.Must(t, n.Close())
	n.Store = nil
	release := n.mountUnresponsive("run/vsw/hung")
	n.open(Options{Mode: ModeMount, Watch: true})
	testkit.Must(t, n.tracker.trackRecorded("s1", "c1"))
	n.waitUntil(func() bool {
		n.lock.mu.Lock()
		defer n.lock.mu.Unlock()
		return n.tracker.sockets["/run/vsw/p1/a.sock"].watch != nil
	}, "the socket is not watched")
	testkit.Must(t, n.tracker.trackRecorded("s2", "c2"))
	time.Sleep(200 * time.Millisecond) // now its watch waits for the file system
	n.wantEnd("removal", func() error { return n.RemoveContainer("s1", "c1") })
	n.wantEnd("creation", func() error { return n.Prepare(newContainer("c3", "s3", "p1/a.sock")) })
	release()
}

// A socket root is unresponsive when the process starts. A socket elsewhere that the host re-creates is rebound.
func TestUnresponsiveRootDelaysNoRebind(t *testing.T) {
	n := newNode(t)
	n.listen("run/vsw/p1/a.sock", "first")
	n.listen("run/vsw/hung/deep/b.sock", "hung")
	testkit.Must(t, n.Prepare(newContainer("c1", "s1", "p1/a.sock")))
	testkit.Must(t, n.Prepare(newContainer("c2", "s2", "hung/deep/b.sock")))
	testkit.Must(t, n.Close())
	n.Store = nil
	release := n.mountUnresponsive("run/vsw/hung")
	n.open(Options{Mode: ModeMount, Watch: true})
	testkit.Must(t, n.tracker.trackRecorded("s2", "c2"))
	time.Sleep(200 * time.Millisecond) // now its watch waits for the file system
	testkit.Must(t, n.tracker.trackRecorded("s1", "c1"))
	n.listen("run/vsw/p1/a.sock", "second")
	n.wantAnswer(n.stagedPath("c1", "net/net1/a.sock"), "second")
	release()
}

// While the end of a container waits for an unresponsive root to revoke access there, other containers get access to
// sockets whose records have the same lock.
func TestUnresponsiveRootDelaysNoOtherAccess(t *testing.T) {
	n, _ := newRightsNode(t, "hung/a.sock")
	testkit.Must(t, n.Prepare(newContainerOf("c1", "s1", "hung/a.sock", edit.ByACL, 1234, 4321)))
	other := "p/b.sock"
	for i := 0; lockOfRights(other) != lockOfRights("hung/a.sock"); i++ {
		other = fmt.Sprintf("p/b%d.sock", i)
	}
	n.listen("run/vsw/"+other, "host")
	release := n.mountUnresponsive("run/vsw/hung")
	removed := make(chan error, 1)
	go func() { removed <- n.RemoveContainer("s1", "c1") }()
	n.waitUntil(func() bool { return !exists(n.records.file("s1", "c1")) }, "the container's record is not removed")
	time.Sleep(100 * time.Millisecond) // now the removal waits for the file system
	n.wantEnd("creation", func() error { return n.Prepare(newContainerOf("c2", "s2", other, edit.ByACL, 1234, 4321)) })
	release()
	<-removed
}

// A socket root is unresponsive when the process starts, and a pod that had a directory there is gone. The
// other containers are tracked.
func TestUnresponsiveRootOfGonePodDelaysNoTracking(t *testing.T) {
	n := newNode(t)
	n.listen("run/vsw/p1/a.sock", "host")
	testkit.Must(t, n.Prepare(edit.Container{ID: "c1", SandboxID: "s1", Dirs: []edit.Dir{{Path: "net/net1"}}, SocketDirs: []edit.SocketDir{{Root: "/run/vsw", Rel: "hung/mine", At: "net/net1"}}}))
	testkit.Must(t, n.Prepare(newContainer("c2", "s2", "p1/a.sock")))
	testkit.Must(t, n.Close())
	n.Store = nil
	release := n.mountUnresponsive("run/vsw/hung")
	n.open(Options{Mode: ModeMount, Watch: true})
	done := make(chan error, 1)
	go func() {
		done <- n.Retain(time.Time{}, func(id string) bool { return id == "s2" }, func(id string) bool { return id == "c2" })
	}()
	n.waitUntil(func() bool { return len(n.TrackedContainers()) == 1 }, "the container that lives is not tracked")
	release()
	<-done
}
