// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/deliver/sockaccess"
	"github.com/jackfield/jackfield/internal/edit"
)

// accessOf describes the owner, group, mode and ACL of a file.
func accessOf(t *testing.T, path string) string {
	t.Helper()
	var st unix.Stat_t
	testkit.Must(t, unix.Stat(path, &st))
	acl := make([]byte, 64<<10)
	size, err := unix.Getxattr(path, "system.posix_acl_access", acl)
	if err != nil && !errors.Is(err, unix.ENODATA) {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d:%d %04o %x", st.Uid, st.Gid, st.Mode&0o7777, acl[:max(size, 0)])
}

// lockOfRights returns the name of the directory whose lock the record of a socket of the host has.
func lockOfRights(socket string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte("/run/vsw/"+socket)))[:1]
}

// newRightsNode returns a node with socket paths that other users of the host can enter.
func newRightsNode(t *testing.T, socket string) (n *node, path string) {
	t.Helper()
	n = newNode(t)
	n.listen("run/vsw/"+socket, "host")
	path = n.path("run/vsw/" + socket)
	testkit.Must(t, os.Chmod(path, 0o755))
	testkit.Must(t, os.Chmod(n.dir, 0o755))
	return n, path
}

// newContainerOf returns a container of a user with a socket of the host.
func newContainerOf(id, sandbox, rel string, method edit.AccessMethod, uid, gid uint32) edit.Container {
	c := newContainer(id, sandbox, rel)
	c.Sockets[0].Access = edit.Access{Method: method, User: &edit.User{UID: uid, GID: gid}}
	return c
}

// wantNoRightsRecords checks that no record of rights is left.
func (n *node) wantNoRightsRecords() {
	n.t.Helper()
	left, err := filepath.Glob(n.path("run/jackfield/rights/*/*.json"))
	testkit.Must(n.t, err)
	if len(left) > 0 {
		n.t.Errorf("records of rights are left: %q", left)
	}
}

// When the last container of a user is removed, by any operation, the socket has its former owner, mode and ACL.
func TestRightsEndWithTheLastContainer(t *testing.T) {
	for method, other := range map[edit.AccessMethod]bool{edit.ByACL: false, edit.ByGroup: true, edit.ByOwner: false} {
		t.Run(string(method), func(t *testing.T) {
			n, path := newRightsNode(t, "p/a.sock")
			n.open(Options{Mode: ModeMount}) // a watch would give lost access back
			before := accessOf(t, path)
			testkit.Must(t, n.Prepare(newContainerOf("c1", "s1", "p/a.sock", method, 1234, 4321)))
			testkit.Must(t, n.Prepare(newContainerOf("c2", "s2", "p/a.sock", method, 1234, 4321)))
			testkit.Must(t, n.Prepare(newContainerOf("c3", "s2", "p/a.sock", method, 1234, 4321)))
			if !canWrite(t, 1234, 4321, path) || canWrite(t, 1235, 4321, path) != other {
				t.Fatal("wrong access to the socket")
			}
			testkit.Must(t, n.RemoveContainer("s1", "c1"))
			if !canWrite(t, 1234, 4321, path) {
				t.Error("a running container has lost access to the socket")
			}
			testkit.Must(t, n.RemoveContainer("s1", "c1"))
			n.open(Options{Mode: ModeMount, Watch: true})
			testkit.Must(t, n.Retain(time.Time{}, func(id string) bool { return true }, func(id string) bool { return id != "c2" }))
			testkit.Must(t, n.RemoveContainer("s2", "c2"))
			if !canWrite(t, 1234, 4321, path) {
				t.Error("a running container has lost access to the socket")
			}
			testkit.Must(t, n.RemoveSandbox("s2"))
			if after := accessOf(t, path); after != before {
				t.Errorf("access is %s, was %s before", after, before)
			}
			n.wantNoRightsRecords()
		})
	}
}

// Several users have access to one socket: each grant ends with its own containers, in any order.
func TestRightsOfSeveralUsers(t *testing.T) {
	for _, method := range []edit.AccessMethod{edit.ByACL, edit.ByGroup, edit.ByOwner} {
		for _, order := range [][]int{{1, 2, 3}, {3, 2, 1}, {2, 3, 1}} {
			t.Run(fmt.Sprint(method, order), func(t *testing.T) {
				n, path := newRightsNode(t, "p/a.sock")
				before := accessOf(t, path)
				for i := range uint32(3) {
					testkit.Must(t, n.Prepare(newContainerOf(fmt.Sprint("c", i+1), "s1", "p/a.sock", method, 1001+i, 2001+i)))
				}
				for done, i := range order {
					testkit.Must(t, n.RemoveContainer("s1", fmt.Sprint("c", i)))
					for _, left := range order[done+1:] {
						// A file has one owner and one group: the user of the last grant.
						if uid := uint32(1000 + left); method == edit.ByACL && !canWrite(t, uid, uid+1000, path) {
							t.Errorf("user %d has lost access to the socket", uid)
						}
					}
					if uid := uint32(1000 + i); canWrite(t, uid, uid+1000, path) {
						t.Errorf("user %d still has access to the socket", uid)
					}
				}
				if after := accessOf(t, path); after != before {
					t.Errorf("access is %s, was %s before", after, before)
				}
				n.wantNoRightsRecords()
			})
		}
	}
}

// A re-created socket gets the access that the remaining containers need, and loses only that.
func TestRightsAtRecreatedSocket(t *testing.T) {
	n, path := newRightsNode(t, "p/a.sock")
	testkit.Must(t, n.Prepare(newContainerOf("c1", "s1", "p/a.sock", edit.ByACL, 1234, 4321)))
	testkit.Must(t, n.Prepare(newContainerOf("c2", "s1", "p/a.sock", edit.ByACL, 1235, 4322)))
	testkit.Must(t, n.RemoveContainer("s1", "c2"))
	n.listen("run/vsw/p/a.sock", "again")
	testkit.Must(t, os.Chmod(path, 0o755))
	before := "0:0 0755"
	n.waitUntil(func() bool { return canWrite(t, 1234, 4321, path) }, "the container's user cannot write the socket")
	if canWrite(t, 1235, 4322, path) {
		t.Error("the user of a removed container still has access")
	}
	testkit.Must(t, n.RemoveSandbox("s1"))
	if after := accessOf(t, path); after[:len(before)] != before || canWrite(t, 1234, 4321, path) {
		t.Errorf("access is %s", after)
	}
}

// The next start revokes what a crash left between any two steps. An update that removes a socket
// revokes the access to it.
func TestRightsAfterCrash(t *testing.T) {
	n, path := newRightsNode(t, "p/a.sock")
	before := accessOf(t, path)
	testkit.Must(t, n.Prepare(newContainerOf("c1", "s1", "p/a.sock", edit.ByACL, 1234, 4321)))
	testkit.Must(t, os.Remove(n.records.file("s1", "c1"))) // the process died before revoking the access
	n.open(Options{Mode: ModeMount, Watch: true})
	none := func(string) bool { return false }
	testkit.Must(t, n.Retain(time.Time{}, none, none))
	if after := accessOf(t, path); after != before {
		t.Errorf("access is %s, was %s before", after, before)
	}
	n.wantNoRightsRecords()

	testkit.Must(t, n.Prepare(newContainerOf("c1", "s1", "p/a.sock", edit.ByACL, 1234, 4321)))
	c := newContainer("c1", "s1", "p/a.sock")
	c.Sockets = nil
	_, err := n.Update(c)
	testkit.Must(t, err)
	if after := accessOf(t, path); after != before {
		t.Errorf("after the update access is %s, was %s before", after, before)
	}
	n.wantNoRightsRecords()
}

// A damaged record revokes nothing and blocks nothing.
func TestRightsOfDamagedRecord(t *testing.T) {
	n, path := newRightsNode(t, "p/a.sock")
	testkit.Must(t, n.Prepare(newContainerOf("c1", "s1", "p/a.sock", edit.ByACL, 1234, 4321)))
	records, err := filepath.Glob(n.path("run/jackfield/rights/*/*.json"))
	testkit.Must(t, err)
	if len(records) != 1 {
		t.Fatalf("the records of rights are %q", records)
	}
	record := records[0]
	for _, text := range []string{"", "{", `{"socket":"/etc/passwd","root":"/run/vsw"}`, `{"socket":"/run/vsw/../../etc/x","root":"/run/vsw","holders":[{"record":"../../x"}]}`} {
		testkit.Must(t, os.WriteFile(record, []byte(text), 0o600))
		testkit.Must(t, n.Prepare(newContainerOf("c2", "s2", "p/a.sock", edit.ByACL, 1235, 4322)))
		testkit.Must(t, n.RemoveSandbox("s2"))
		if !canWrite(t, 1234, 4321, path) || canWrite(t, 1235, 4322, path) {
			t.Errorf("%q: wrong access: %s", text, accessOf(t, path))
		}
	}
}

// Another adapter's container of the same user keeps the access.
func TestRightsAreSharedByAdapters(t *testing.T) {
	n, path := newRightsNode(t, "p/a.sock")
	before := accessOf(t, path)
	hook, err := Open(n.host, HookDir("/run/jackfield"), Options{Mode: ModeMount, Owner: HookOwner, Shared: true})
	testkit.Must(t, err)
	t.Cleanup(func() { _ = hook.RemoveSandbox("pod"); _ = hook.UnmountIfEmpty(); _ = hook.Close() })
	testkit.Must(t, n.Prepare(newContainerOf("c1", "s1", "p/a.sock", edit.ByACL, 1234, 4321)))
	testkit.Must(t, hook.Prepare(newContainerOf("c2", "pod", "p/a.sock", edit.ByACL, 1234, 4321)))
	testkit.Must(t, n.RemoveSandbox("s1"))
	none := func(string) bool { return false }
	testkit.Must(t, n.Retain(time.Time{}, none, none))
	if !canWrite(t, 1234, 4321, path) {
		t.Error("the hook's container has lost access to the socket")
	}
	testkit.Must(t, hook.RemoveSandbox("pod"))
	if after := accessOf(t, path); after != before {
		t.Errorf("access is %s, was %s before", after, before)
	}
}

// Pods of 600 users, one after the other and at the same time, use one long-lived socket, on file systems with small and with large ACLs.
func TestRightsOfManyUsers(t *testing.T) {
	for _, fs := range []string{"tmpfs", "ext4"} {
		t.Run(fs, func(t *testing.T) {
			n := newNode(t)
			if fs == "ext4" {
				mountExt4(t, n.path("run/vsw"))
			}
			n.listen("run/vsw/p/a.sock", "host")
			path := n.path("run/vsw/p/a.sock")
			testkit.Must(t, os.Chmod(path, 0o755))
			before := accessOf(t, path)
			for i := range uint32(600) {
				testkit.Must(t, n.Prepare(newContainerOf("c1", "s1", "p/a.sock", edit.ByACL, 100000+i, 100000+i)))
				testkit.Must(t, n.RemoveSandbox("s1"))
			}
			if after := accessOf(t, path); after != before {
				t.Errorf("access is %s, was %s before", after, before)
			}
			// Entries that crashes left make room in a full ACL.
			for i := range uint32(600) {
				testkit.Must(t, n.Prepare(newContainerOf(strconv.Itoa(int(i)), "s1", "p/a.sock", edit.ByACL, 100000+i, 100000+i)))
				if fs == "ext4" {
					testkit.Must(t, os.Remove(n.records.file("s1", strconv.Itoa(int(i)))))
				}
			}
			none := func(string) bool { return false }
			n.open(Options{Mode: ModeMount})
			testkit.Must(t, n.Retain(time.Time{}, none, none))
			if after := accessOf(t, path); after != before {
				t.Errorf("access is %.200s, was %s before", after, before)
			}
		})
	}
}

// mountExt4 mounts a new ext4 file system at dir.
func mountExt4(t *testing.T, dir string) {
	t.Helper()
	mkfs, err := exec.LookPath("mkfs.ext4")
	if err != nil {
		t.Skip("skipped: there is no mkfs.ext4")
	}
	image := filepath.Join(t.TempDir(), "ext4")
	f, err := os.Create(image)
	testkit.Must(t, err)
	testkit.Must(t, f.Truncate(8<<20))
	testkit.Must(t, f.Close())
	for _, args := range [][]string{{mkfs, "-q", "-F", image}, {"mount", "-o", "loop", image, dir}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Skipf("skipped: %q: %v: %s", args, err, out)
		}
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
}

// An update of a container that is removed meanwhile leaves no access.
func TestUpdateOfRemovedContainerLeavesNoAccess(t *testing.T) {
	n, path := newRightsNode(t, "p/a.sock")
	before := accessOf(t, path)
	testkit.Must(t, n.Prepare(edit.Container{ID: "c1", SandboxID: "s1"}))
	// The records of the second socket are locked: the update waits there.
	second := "p/b.sock"
	for i := 0; lockOfRights(second) == lockOfRights("p/a.sock"); i++ {
		second = fmt.Sprintf("p/b%d.sock", i)
	}
	n.listen("run/vsw/"+second, "host")
	digit := n.path("run/jackfield/rights/" + lockOfRights(second))
	testkit.Must(t, os.MkdirAll(digit, 0o700))
	lock, err := os.Open(digit)
	testkit.Must(t, err)
	testkit.Must(t, unix.Flock(int(lock.Fd()), unix.LOCK_EX))
	c := newContainerOf("c1", "s1", "p/a.sock", edit.ByACL, 1234, 4321)
	c.Sockets = append(c.Sockets, edit.Socket{Root: "/run/vsw", Rel: second, At: []string{"net/net1/b.sock"}, Access: c.Sockets[0].Access})
	done := make(chan error)
	go func() {
		_, err := n.Update(c)
		done <- err
	}()
	n.waitUntil(func() bool { return accessOf(t, path) != before }, "the update grants no access")
	testkit.Must(t, n.RemoveContainer("s1", "c1"))
	testkit.Must(t, lock.Close())
	if err := <-done; !errdefs.IsNotFound(err) {
		t.Errorf("the container is updated: %v", err)
	}
	if after := accessOf(t, path); after != before {
		t.Errorf("access is %s, was %s before", after, before)
	}
	n.wantNoRightsRecords()
}

// An update whose record cannot be written revokes the access that it granted.
func TestUpdateWithoutRecordLeavesNoAccess(t *testing.T) {
	n, path := newRightsNode(t, "p/a.sock")
	before := accessOf(t, path)
	// The sandbox has a socket already, so that only the record of the container is written.
	n.listen("run/vsw/p/b.sock", "host")
	testkit.Must(t, n.Prepare(newContainer("c1", "s1", "p/b.sock")))
	dir := n.records.sandboxesDir()
	testkit.Must(t, unix.Mount(dir, dir, "", unix.MS_BIND, ""))
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	testkit.Must(t, unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	if _, err := n.Update(newContainerOf("c1", "s1", "p/a.sock", edit.ByACL, 1234, 4321)); !errors.Is(err, unix.EROFS) {
		t.Errorf("the update without a record: %v", err)
	}
	if after := accessOf(t, path); after != before {
		t.Errorf("access is %s, was %s before", after, before)
	}
	n.wantNoRightsRecords()
}

// No container is granted access without a record, because removal would not revoke the access.
func TestNoAccessWithoutRecord(t *testing.T) {
	n, path := newRightsNode(t, "p/a.sock")
	before := accessOf(t, path)
	k := newContainerOf("c1", "s1", "p/a.sock", edit.ByACL, 1234, 4321).Sockets[0]
	fd, err := unix.Open(path, unix.O_PATH, 0)
	testkit.Must(t, err)
	defer unix.Close(fd)
	request := sockaccess.Request{Container: n.records.name("s1", "c1"), Access: &k.Access}
	if err := n.sockets.rights.Grant(k.HostPath(), fd, []sockaccess.Request{request}); !errdefs.IsNotFound(err) {
		t.Errorf("grant to a container without a record: %v", err)
	}
	if after := accessOf(t, path); after != before {
		t.Errorf("access is %s, was %s before", after, before)
	}
}

// A file that cannot be replaced is not reported as changed.
func TestUpdateWithoutFileIsNoChange(t *testing.T) {
	n := newNode(t)
	testkit.Must(t, n.Prepare(edit.Container{ID: "c1", SandboxID: "s1"}))
	testkit.Must(t, os.MkdirAll(filepath.Join(n.containers.dir, "c1", "devices.json", "full"), 0o700))
	c := edit.Container{ID: "c1", SandboxID: "s1", Files: []edit.File{{Name: "devices.json", Data: []byte("{}")}}}
	if change, err := n.Update(c); err == nil || !change.Empty() {
		t.Errorf("the update reports %+v, %v", change, err)
	}
}
