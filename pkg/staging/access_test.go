// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"os"
	"os/exec"
	"reflect"
	"syscall"
	"testing"
)

func TestAllowed(t *testing.T) {
	plain := []aclEntry{{aclUserObj, 7, aclNoID}, {aclGroupObj, 5, aclNoID}, {aclOther, 5, aclNoID}}
	one, changed := allowed(plain, 1000, toConnect)
	want := []aclEntry{{aclUserObj, 7, aclNoID}, {aclUser, 6, 1000}, {aclGroupObj, 5, aclNoID}, {aclMask, 7, aclNoID}, {aclOther, 5, aclNoID}}
	if !changed || !reflect.DeepEqual(one, want) {
		t.Errorf("got %v, %v", one, changed)
	}
	if _, changed := allowed(one, 1000, toConnect); changed {
		t.Error("what is allowed was changed")
	}
	two, _ := allowed(one, 999, toConnect)
	if two[1].ID != 999 || two[2].ID != 1000 || len(two) != 6 {
		t.Errorf("not sorted: %v", two)
	}
	// Somebody's chmod narrowed the mask: what it took from others stays taken.
	two[4].Perm = 4
	three, changed := allowed(two, 999, toConnect)
	if !changed || three[1].Perm != 6 || three[2].Perm != 4 || three[3].Perm != 4 || three[4].Perm != 6 {
		t.Errorf("got %v", three)
	}
}

// can reports whether a user and group of the host can write the socket.
func can(t *testing.T, uid, gid uint32, path string) bool {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", `test -w "$0"`, path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	return cmd.Run() == nil
}

func TestAccess(t *testing.T) {
	n := newNode(t)
	must(t, os.Chmod(n.path("run/jackfield"), 0o755)) // for the look from outside the container
	must(t, os.Chmod(n.path("run/jackfield/containers"), 0o755))
	must(t, os.Chmod(n.dir, 0o755))
	for way, other := range map[Way]bool{ByACL: false, ByGroup: true, ByOwner: false} {
		t.Run(string(way), func(t *testing.T) {
			rel := "p-" + string(way) + "/a.sock"
			made := func() {
				n.listen("run/vsw/"+rel, "x")
				must(t, os.Chmod(n.path("run/vsw/"+rel), 0o755))
			}
			made()
			c := one("c-"+string(way), "s1", rel)
			c.Sockets[0].Access = Access{Way: way, User: &User{UID: 1234, GID: 4321}}
			at := n.in(c.ID, "net/net1/a.sock")
			if can(t, 1234, 4321, n.path("run/vsw/"+rel)) {
				t.Fatal("the user could write the socket before")
			}
			must(t, n.Prepare(c))
			check := func() {
				t.Helper()
				n.eventually(func() bool { return can(t, 1234, 4321, at) }, "the container's user cannot write the socket")
				if can(t, 1235, 4322, at) || can(t, 1235, 4321, at) != other {
					t.Error("somebody else can, or cannot")
				}
				st, err := os.Stat(at)
				must(t, err)
				if st.Mode().Perm()&0o002 != 0 {
					t.Errorf("the mode is %v", st.Mode())
				}
			}
			check()
			// The vswitch sets the mode late, and makes the socket anew.
			must(t, os.Chmod(n.path("run/vsw/"+rel), 0o700))
			check()
			made()
			check()
		})
	}
	if f := n.events.failures(); len(f) > 0 {
		t.Errorf("failures: %v", f)
	}
}
