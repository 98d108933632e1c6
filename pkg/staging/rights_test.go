// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// accessOf is who has which rights at a file: owner, group, mode and ACL.
func accessOf(t *testing.T, path string) string {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Stat(path, &st))
	acl, err := readACL(path)
	must(t, err)
	return fmt.Sprintf("%d:%d %04o %v", st.Uid, st.Gid, st.Mode&0o7777, acl)
}

// newRightsNode is a node whose socket paths other users of the host can pass.
func newRightsNode(t *testing.T, socket string) (n *node, path string) {
	t.Helper()
	n = newNode(t)
	n.listen("run/vsw/"+socket, "host")
	path = n.path("run/vsw/" + socket)
	must(t, os.Chmod(path, 0o755))
	must(t, os.Chmod(n.dir, 0o755))
	return n, path
}

func as(id, sandbox, rel string, way Way, uid, gid uint32) Container {
	c := one(id, sandbox, rel)
	c.Sockets[0].Access = Access{Way: way, User: &User{UID: uid, GID: gid}}
	return c
}

func (n *node) noRights() {
	n.t.Helper()
	left, err := filepath.Glob(n.path("run/jackfield/rights/*.json"))
	if must(n.t, err); len(left) > 0 {
		n.t.Errorf("records of rights are left: %q", left)
	}
}

// When the last container of a user is removed, by whatever path, the socket is as it was before the first.
func TestRightsEndWithTheLastContainer(t *testing.T) {
	for way, other := range map[Way]bool{ByACL: false, ByGroup: true, ByOwner: false} {
		t.Run(string(way), func(t *testing.T) {
			n, path := newRightsNode(t, "p/a.sock")
			before := accessOf(t, path)
			must(t, n.Prepare(as("c1", "s1", "p/a.sock", way, 1234, 4321)))
			must(t, n.Prepare(as("c2", "s2", "p/a.sock", way, 1234, 4321)))
			must(t, n.Prepare(as("c3", "s2", "p/a.sock", way, 1234, 4321)))
			if !can(t, 1234, 4321, path) || can(t, 1235, 4321, path) != other {
				t.Fatal("the rights are not as wanted")
			}
			must(t, n.RemoveContainer("s1", "c1"))
			if !can(t, 1234, 4321, path) {
				t.Error("a container that runs has lost the socket")
			}
			must(t, n.RemoveContainer("s1", "c1"))
			n.open(Options{Mode: Mounts, Watch: true})
			must(t, n.Retain(func(id string) bool { return true }, func(id string) bool { return id != "c2" }))
			must(t, n.RemoveContainer("s2", "c2"))
			if !can(t, 1234, 4321, path) {
				t.Error("a container that runs has lost the socket")
			}
			must(t, n.RemoveSandbox("s2"))
			if after := accessOf(t, path); after != before {
				t.Errorf("afterwards the socket has %s, before %s", after, before)
			}
			n.noRights()
		})
	}
}

// Several users at one socket: each right ends with its own containers, whatever the order.
func TestRightsOfSeveralUsers(t *testing.T) {
	for _, way := range []Way{ByACL, ByGroup, ByOwner} {
		for _, order := range [][]int{{1, 2, 3}, {3, 2, 1}, {2, 3, 1}} {
			t.Run(fmt.Sprint(way, order), func(t *testing.T) {
				n, path := newRightsNode(t, "p/a.sock")
				before := accessOf(t, path)
				for i := range uint32(3) {
					must(t, n.Prepare(as(fmt.Sprint("c", i+1), "s1", "p/a.sock", way, 1001+i, 2001+i)))
				}
				for done, i := range order {
					must(t, n.RemoveContainer("s1", fmt.Sprint("c", i)))
					for _, left := range order[done+1:] {
						// A file has one owner and one group: of several, the last has it.
						if uid := uint32(1000 + left); way == ByACL && !can(t, uid, uid+1000, path) {
							t.Errorf("user %d has lost the socket", uid)
						}
					}
					if uid := uint32(1000 + i); can(t, uid, uid+1000, path) {
						t.Errorf("user %d has the socket still", uid)
					}
				}
				if after := accessOf(t, path); after != before {
					t.Errorf("afterwards the socket has %s, before %s", after, before)
				}
				n.noRights()
			})
		}
	}
}

// What an administrator granted, before or meanwhile, stays.
func TestRightsOfTheAdministratorStay(t *testing.T) {
	n, path := newRightsNode(t, "p/a.sock")
	must(t, allow(path, 1234, toConnect))
	must(t, n.Prepare(as("c1", "s1", "p/a.sock", ByACL, 1234, 4321)))
	must(t, n.Prepare(as("c2", "s1", "p/a.sock", ByACL, 1235, 4322)))
	must(t, allow(path, 1236, toConnect))
	must(t, n.RemoveSandbox("s1"))
	for uid, want := range map[uint32]bool{1234: true, 1235: false, 1236: true} {
		if can(t, uid, 9, path) != want {
			t.Errorf("user %d can write the socket: %t", uid, !want)
		}
	}
	// So does a mode and a group that somebody set meanwhile.
	n, path = newRightsNode(t, "q/a.sock")
	must(t, n.Prepare(as("c1", "s1", "q/a.sock", ByGroup, 1234, 4321)))
	must(t, n.Close())
	must(t, os.Chown(path, 7, 8))
	must(t, os.Chmod(path, 0o660))
	n.Store = nil
	n.open(Options{Mode: Mounts})
	must(t, n.RemoveSandbox("s1"))
	if got := accessOf(t, path); got[:9] != "7:8 0660 " {
		t.Errorf("the socket has %s", got)
	}
}

// A socket that took the place of the first has what the living containers need, and nothing is taken from it when they go but that.
func TestRightsAtASocketMadeAgain(t *testing.T) {
	n, path := newRightsNode(t, "p/a.sock")
	must(t, n.Prepare(as("c1", "s1", "p/a.sock", ByACL, 1234, 4321)))
	must(t, n.Prepare(as("c2", "s1", "p/a.sock", ByACL, 1235, 4322)))
	must(t, n.RemoveContainer("s1", "c2"))
	n.listen("run/vsw/p/a.sock", "again")
	must(t, os.Chmod(path, 0o755))
	before := "0:0 0755"
	n.eventually(func() bool { return can(t, 1234, 4321, path) }, "the container's user cannot write the socket")
	if can(t, 1235, 4322, path) {
		t.Error("a container that was removed has it as well")
	}
	must(t, n.RemoveSandbox("s1"))
	if after := accessOf(t, path); after[:len(before)] != before || can(t, 1234, 4321, path) {
		t.Errorf("afterwards the socket has %s", after)
	}
}

// What a crash leaves between any two steps is taken back at the next start, and an update that drops a socket takes back what it had.
func TestRightsAfterACrash(t *testing.T) {
	n, path := newRightsNode(t, "p/a.sock")
	before := accessOf(t, path)
	must(t, n.Prepare(as("c1", "s1", "p/a.sock", ByACL, 1234, 4321)))
	must(t, os.Remove(n.recordFile("s1", "c1"))) // the process died before it took the right back
	n.open(Options{Mode: Mounts, Watch: true})
	none := func(string) bool { return false }
	must(t, n.Retain(none, none))
	if after := accessOf(t, path); after != before {
		t.Errorf("afterwards the socket has %s, before %s", after, before)
	}
	n.noRights()

	must(t, n.Prepare(as("c1", "s1", "p/a.sock", ByACL, 1234, 4321)))
	c := one("c1", "s1", "p/a.sock")
	c.Sockets = nil
	_, err := n.Update(c)
	must(t, err)
	if after := accessOf(t, path); after != before {
		t.Errorf("after the update the socket has %s, before %s", after, before)
	}
	n.noRights()
}

// A record that is cut short, or forged by a disk, takes nothing back and stops nothing.
func TestRightsOfABrokenRecord(t *testing.T) {
	n, path := newRightsNode(t, "p/a.sock")
	must(t, n.Prepare(as("c1", "s1", "p/a.sock", ByACL, 1234, 4321)))
	for _, text := range []string{"", "{", `{"socket":"/etc/passwd","root":"/run/vsw"}`, `{"socket":"/run/vsw/../../etc/x","root":"/run/vsw","holders":[{"record":"../../x"}]}`} {
		record := n.path("run/jackfield/rights/" + rightsName("/run/vsw/p/a.sock"))
		must(t, os.MkdirAll(filepath.Dir(record), 0o700)) // it goes with the last record in it
		must(t, os.WriteFile(record, []byte(text), 0o600))
		must(t, n.Prepare(as("c2", "s2", "p/a.sock", ByACL, 1235, 4322)))
		must(t, n.RemoveSandbox("s2"))
		if !can(t, 1234, 4321, path) || can(t, 1235, 4322, path) {
			t.Errorf("%q: the rights are wrong: %s", text, accessOf(t, path))
		}
	}
}

// Another adapter's container, of the same user, keeps the right.
func TestRightsAreSharedByAdapters(t *testing.T) {
	n, path := newRightsNode(t, "p/a.sock")
	before := accessOf(t, path)
	hook, err := Open(n.host, HookDir("/run/jackfield"), Options{Mode: Mounts, Owner: HookOwner, Shared: true})
	must(t, err)
	t.Cleanup(func() { _ = hook.RemoveSandbox("pod"); _ = hook.Tidy(); _ = hook.Close() })
	must(t, n.Prepare(as("c1", "s1", "p/a.sock", ByACL, 1234, 4321)))
	must(t, hook.Prepare(as("c2", "pod", "p/a.sock", ByACL, 1234, 4321)))
	must(t, n.RemoveSandbox("s1"))
	none := func(string) bool { return false }
	must(t, n.Retain(none, none))
	if !can(t, 1234, 4321, path) {
		t.Error("the hook's container has lost the socket")
	}
	must(t, hook.RemoveSandbox("pod"))
	if after := accessOf(t, path); after != before {
		t.Errorf("afterwards the socket has %s, before %s", after, before)
	}
}

// Pods of 600 users, one after the other and at once, use one socket that lives long, on file systems with small and with large ACLs.
func TestRightsOfManyUsers(t *testing.T) {
	for _, fs := range []string{"tmpfs", "ext4"} {
		t.Run(fs, func(t *testing.T) {
			n := newNode(t)
			if fs == "ext4" {
				mountExt4(t, n.path("run/vsw"))
			}
			n.listen("run/vsw/p/a.sock", "host")
			path := n.path("run/vsw/p/a.sock")
			must(t, os.Chmod(path, 0o755))
			before := accessOf(t, path)
			for i := range uint32(600) {
				must(t, n.Prepare(as("c1", "s1", "p/a.sock", ByACL, 100000+i, 100000+i)))
				must(t, n.RemoveSandbox("s1"))
			}
			if after := accessOf(t, path); after != before {
				t.Errorf("afterwards the socket has %s, before %s", after, before)
			}
			// What crashes left makes room when there is no more.
			for i := range uint32(600) {
				must(t, n.Prepare(as(strconv.Itoa(int(i)), "s1", "p/a.sock", ByACL, 100000+i, 100000+i)))
				if fs == "ext4" {
					must(t, os.Remove(n.recordFile("s1", strconv.Itoa(int(i)))))
				}
			}
			none := func(string) bool { return false }
			n.open(Options{Mode: Mounts})
			must(t, n.Retain(none, none))
			if after := accessOf(t, path); after != before {
				t.Errorf("afterwards the socket has %.200s, before %s", after, before)
			}
		})
	}
}

// mountExt4 mounts an ext4 file system of its own at dir.
func mountExt4(t *testing.T, dir string) {
	t.Helper()
	mkfs, err := exec.LookPath("mkfs.ext4")
	if err != nil {
		t.Skip("skipped: there is no mkfs.ext4")
	}
	image := filepath.Join(t.TempDir(), "ext4")
	f, err := os.Create(image)
	must(t, err)
	must(t, f.Truncate(8<<20))
	must(t, f.Close())
	for _, args := range [][]string{{mkfs, "-q", "-F", image}, {"mount", "-o", "loop", image, dir}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Skipf("skipped: %q: %v: %s", args, err, out)
		}
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
}
