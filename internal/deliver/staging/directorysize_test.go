// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/deliver/sockdir"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

const testSize = 64 << 10

// newBoundedNode returns a node with a size limit for socket directories.
func newBoundedNode(t *testing.T) *node {
	t.Helper()
	n := newNode(t)
	n.open(Options{Mode: ModeMount, Watch: true, DirectorySize: testSize})
	return n
}

// mountedSockets lists the mount points of file systems that bound directories, and their options.
func (n *node) mountedSockets() map[string]string {
	n.t.Helper()
	data, err := os.ReadFile("/proc/self/mountinfo")
	testkit.Must(n.t, err)
	found := map[string]string{}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); strings.HasPrefix(f[4], n.dir+"/") && strings.Contains(line, " "+sockdir.MountSource+" ") {
			found[strings.TrimPrefix(f[4], n.dir)] = f[5]
		}
	}
	return found
}

// wantNothingLeft fails the test if a mount or a directory is left.
func (n *node) wantNothingLeft(what string) {
	n.t.Helper()
	left, err := os.ReadDir(n.path("run/vsw"))
	testkit.Must(n.t, err)
	if m := n.mountedSockets(); len(m) > 0 || len(left) > 0 {
		n.t.Errorf("%s: left mounts %v, directories %v", what, m, left)
	}
}

func identityAt(t *testing.T, path string) hostfs.FileID {
	t.Helper()
	var st unix.Stat_t
	testkit.Must(t, unix.Lstat(path, &st))
	return hostfs.FileID{Device: uint64(st.Dev), Inode: st.Ino}
}

// A directory for an application's sockets is a small file system on the host, on which
// set-uid programs and device nodes have no effect, and which the container sees.
func TestDirectoryIsBounded(t *testing.T) {
	n := newBoundedNode(t)
	c := newServer("c1", "s1", "a/b")
	c.SocketDirs[0].At, c.SocketDirs[0].Access.User = "net/net1", &edit.User{UID: 1234, GID: 1235}
	testkit.Must(t, n.Prepare(c))
	own := n.path("run/vsw/a/b")
	options := n.mountedSockets()["/run/vsw/a/b"]
	for _, want := range []string{"nosuid", "nodev", "noexec"} {
		if !slices.Contains(strings.Split(options, ","), want) {
			t.Errorf("on the host: mount options %q, want %s", options, want)
		}
	}
	var st unix.Stat_t
	testkit.Must(t, unix.Stat(own, &st))
	if st.Uid != 1234 || st.Gid != 1235 || st.Mode&0o7777 != 0o755 {
		t.Errorf("directory has owner %d:%d and mode %o", st.Uid, st.Gid, st.Mode)
	}
	inside := filepath.Join(n.containers.dir, "c1", "net/net1")
	if identityAt(t, inside) != identityAt(t, own) {
		t.Error("container and host have different directories")
	}
	err := os.WriteFile(filepath.Join(inside, "fill"), make([]byte, 4*testSize), 0o600)
	if !errors.Is(err, unix.ENOSPC) {
		t.Errorf("the container writes four times the size: %v", err)
	}
	testkit.Must(t, os.Remove(filepath.Join(inside, "fill")))
	for i := range 2048 {
		if err = unix.Mkdir(filepath.Join(inside, "d"+string(rune('a'+i%26))+strings.Repeat("x", i/26)), 0o700); err != nil {
			break
		}
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Errorf("the container creates 2048 directories: %v", err)
	}
	testkit.Must(t, os.WriteFile(n.path("run/vsw/other"), make([]byte, 4*testSize), 0o600)) // the socket root has room
	testkit.Must(t, os.Remove(n.path("run/vsw/other")))

	second := newServer("c2", "s1", "a/b")
	second.SocketDirs[0].At = "net/net1"
	testkit.Must(t, n.Prepare(second))
	if identityAt(t, filepath.Join(n.containers.dir, "c2", "net/net1")) != identityAt(t, own) {
		t.Errorf("the sandbox's second container has another directory; mounts %v", n.mountedSockets())
	}
	if err := n.Prepare(newServer("c3", "s2", "a/b")); !errdefs.IsConflict(err) {
		t.Errorf("another sandbox: %v", err)
	}
	if state, err := n.sockets.dirs.FindState("s1", "/run/vsw", "a/b"); state != edit.OwnDir || err != nil {
		t.Errorf("the directory has state %v, %v", state, err)
	}
	testkit.Must(t, n.RemoveSandbox("s1"))
	testkit.Must(t, n.RemoveSandbox("s2"))
	n.wantNothingLeft("after the sandbox")
}

// The start of the next process removes a pod's bounded directory, even without a size limit.
func TestBoundedDirectoryIsRemovedByTheNextProcess(t *testing.T) {
	n := newBoundedNode(t)
	testkit.Must(t, n.Prepare(newServer("c1", "s1", "a/b")))
	testkit.Must(t, os.WriteFile(n.path("run/vsw/a/b/app.sock"), nil, 0o600))
	n.open(Options{Mode: ModeMount, Watch: true})
	testkit.Must(t, n.Retain(time.Time{}, func(string) bool { return false }, func(string) bool { return false }))
	n.wantNothingLeft("after Retain")
}

// Another process's mount on the directory is neither unmounted nor emptied.
func TestForeignMountOnBoundedDirectoryStays(t *testing.T) {
	n := newBoundedNode(t)
	testkit.Must(t, n.Prepare(newServer("c1", "s1", "a")))
	testkit.Must(t, unix.Mount(sockdir.MountSource, n.path("run/vsw/a"), "tmpfs", 0, ""))
	testkit.Must(t, os.WriteFile(n.path("run/vsw/a/precious"), nil, 0o600))
	_ = n.RemoveSandbox("s1")
	if !exists(n.path("run/vsw/a/precious")) {
		t.Error("a foreign mount was unmounted or emptied")
	}
}

// A process that was killed before the record of the file system, or between the record and the
// mount, leaves nothing that the end of the sandbox does not remove; and the sandbox's next
// container gets a bounded directory.
func TestBoundedDirectoryAfterCrash(t *testing.T) {
	steps := map[string]func(n *node) string{
		"created": func(*node) string { return pendingCreation },
		"recorded": func(n *node) string {
			id := identityAt(n.t, n.path("run/vsw/a"))
			return fmt.Sprintf(`,"created":{"device":%d,"inode":%d},"mounted":{"device":1,"inode":1}`, id.Device, id.Inode)
		},
	}
	for name, recorded := range steps {
		for _, again := range []bool{false, true} {
			n := newBoundedNode(t)
			c := newServer("c1", "s1", "a")
			testkit.Must(t, n.lock.run(func() error { return n.recordContainer(&c) }))
			testkit.Must(t, n.records.markClaimed("s1"))
			testkit.Must(t, os.Mkdir(n.path("run/vsw/a"), 0o755))
			writeClaim(t, n.Store, "a", recorded(n))
			n.open(Options{Mode: ModeMount, Watch: true, DirectorySize: testSize})
			if again {
				testkit.Must(t, n.Prepare(newServer("c2", "s1", "a")))
				if len(n.mountedSockets()) != 1 {
					t.Errorf("%s: the next container's directory is not bounded", name)
				}
			}
			testkit.Must(t, n.RemoveSandbox("s1"))
			n.wantNothingLeft(name)
		}
	}
}

// A process that does not see the mount does not deliver the directory below it.
func TestUnseenMountIsRefused(t *testing.T) {
	n := newBoundedNode(t)
	testkit.Must(t, n.Prepare(newServer("c1", "s1", "a")))
	testkit.Must(t, unix.Unmount(n.path("run/vsw/a"), unix.MNT_DETACH))
	n.open(Options{Mode: ModeMount, Watch: true})
	if err := n.Prepare(newServer("c2", "s1", "a")); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "HostToContainer") {
		t.Errorf("got %v", err)
	}
	testkit.Must(t, n.RemoveSandbox("s1"))
	n.wantNothingLeft("after the sandbox")
}

// Without a size, and where mounts do not reach the host, directories are plain. The
// risks of the root are reported then, and not where directories are bounded.
func TestDirectoryIsPlain(t *testing.T) {
	n := newNode(t)
	testkit.Must(t, n.Prepare(newServer("c1", "s1", "a")))
	if m := n.mountedSockets(); len(m) > 0 {
		t.Errorf("no size: mounts %v", m)
	}
	roots := []string{"/run/vsw"}
	if risks := sockdir.CheckRootMounts(n.host, "/run/jackfield", roots, true); len(risks) > 0 {
		t.Errorf("bounded: %+v", risks)
	}
	testkit.Must(t, unix.Mount("test", n.path("run/vsw"), "tmpfs", 0, ""))
	testkit.Must(t, unix.Mount("", n.path("run/vsw"), "", unix.MS_PRIVATE, ""))
	n.open(Options{Mode: ModeMount, Watch: true, DirectorySize: testSize})
	testkit.Must(t, n.Prepare(newServer("c2", "s2", "b/c")))
	if m := n.mountedSockets(); len(m) > 0 || !exists(n.path("run/vsw/b/c")) {
		t.Errorf("not shared: mounts %v", m)
	}
	risks := sockdir.CheckRootMounts(n.host, "/run/jackfield", roots, true)
	if len(risks) != 1 || !strings.Contains(risks[0].Remedy, "Bidirectional") {
		t.Errorf("not shared: risks %+v", risks)
	}
	testkit.Must(t, n.RemoveSandbox("s2"))
	n.wantNothingLeft("after the sandbox")
}
