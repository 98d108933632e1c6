// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/deliver/sockdir"
	"github.com/jackfield/jackfield/internal/edit"
)

// A directory tree thousands of levels deep in a socket directory is removed with the sandbox,
// with few descriptors. The targets of symlinks in it stay.
func TestRemoveSandboxRemovesDeepTree(t *testing.T) {
	s, dir := newTestStore(t)
	testkit.Must(t, s.Prepare(edit.Container{ID: "c1", SandboxID: "s1", SocketDirs: []edit.SocketDir{{Root: "/run/vsw", Rel: "own"}}}))
	at, err := unix.Open(filepath.Join(dir, "run/vsw/own"), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	testkit.Must(t, err)
	neighbour := filepath.Join(dir, "run/vsw/neighbour")
	testkit.Must(t, os.MkdirAll(filepath.Join(neighbour, "sub"), 0o755))
	for range 1500 {
		testkit.Must(t, unix.Mkdirat(at, "d", 0o755))
		next, err := unix.Openat(at, "d", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		testkit.Must(t, err)
		testkit.Must(t, unix.Symlinkat(neighbour, at, "link"))
		unix.Close(at)
		at = next
	}
	unix.Close(at)
	var limit unix.Rlimit
	testkit.Must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	fds, err := os.ReadDir("/proc/self/fd")
	testkit.Must(t, err)
	low := limit
	low.Cur = uint64(len(fds)) + 64
	testkit.Must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &low))
	err = s.RemoveSandbox("s1")
	testkit.Must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
	if err != nil {
		t.Errorf("%.300v", err)
	}
	if exists(filepath.Join(dir, "run/vsw/own")) || !exists(filepath.Join(neighbour, "sub")) || exists(filepath.Join(dir, "run/jackfield/sandboxes/s1")) {
		t.Error("wrong directories were removed")
	}
}

// A socket is not rebound from a directory that another sandbox can write: the application there
// could replace the vswitch's socket.
func TestRebindRefusesDirectoryOfAnotherSandbox(t *testing.T) {
	n := newNode(t)
	n.listen("run/vsw/a/a.sock", "vswitch")
	testkit.Must(t, n.Prepare(newContainer("c1", "s1", "a/a.sock")))
	n.wantAnswer(n.stagedPath("c1", "net/net1/a.sock"), "vswitch")
	// The container's claim of the socket was lost.
	testkit.Must(t, n.sockets.dirs.Release(func(h sockdir.Holder) bool { return h.Sandbox == "s1" }))
	_, err := n.sockets.dirs.Claim("/run/vsw/a", sockdir.Holder{Sandbox: "other", Adapter: sockdir.CNI}, true)
	testkit.Must(t, err)
	n.listen("run/vsw/a/a.sock", "impostor")
	n.waitUntil(func() bool { return len(n.events.failures()) > 0 }, "the socket was not refused")
	if got, err := readSocket(n.stagedPath("c1", "net/net1/a.sock")); err == nil && got != "vswitch" {
		t.Errorf("the socket in the container answers %q", got)
	}
	if err := n.events.failures()[0]; !errdefs.IsConflict(err) {
		t.Errorf("got %v", err)
	}
}

// A parent of a socket directory stays while it contains anything else.
func TestParentOfSocketDirectoriesStays(t *testing.T) {
	s, dir := newTestStore(t)
	for _, id := range []string{"s1", "s2"} {
		testkit.Must(t, s.Prepare(edit.Container{ID: "c" + id, SandboxID: id, SocketDirs: []edit.SocketDir{{Root: "/run/vsw", Rel: "shared/" + id}}}))
	}
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "run/vsw/shared/s2/file"), nil, 0o600))
	testkit.Must(t, s.RemoveSandbox("s1"))
	if exists(filepath.Join(dir, "run/vsw/shared/s1")) || !exists(filepath.Join(dir, "run/vsw/shared/s2/file")) {
		t.Error("wrong directories were removed")
	}
	testkit.Must(t, s.RemoveSandbox("s2"))
	if exists(filepath.Join(dir, "run/vsw/shared/s2")) {
		t.Error("the directory is left")
	}
}
