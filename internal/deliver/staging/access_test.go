// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/edit"
)

// canWrite reports whether a user and group of the host can write the socket.
func canWrite(t *testing.T, uid, gid uint32, path string) bool {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", `test -w "$0"`, path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	return cmd.Run() == nil
}

func TestGrantByEachMethod(t *testing.T) {
	n := newNode(t)
	testkit.Must(t, os.Chmod(n.path("run/jackfield"), 0o755)) // other users can enter the directory
	testkit.Must(t, os.Chmod(n.path("run/jackfield/containers"), 0o755))
	testkit.Must(t, os.Chmod(n.dir, 0o755))
	for method, other := range map[edit.AccessMethod]bool{edit.ByACL: false, edit.ByGroup: true, edit.ByOwner: false} {
		t.Run(string(method), func(t *testing.T) {
			rel := "p-" + string(method) + "/a.sock"
			made := func() {
				n.listen("run/vsw/"+rel, "x")
				testkit.Must(t, os.Chmod(n.path("run/vsw/"+rel), 0o755))
			}
			made()
			c := newContainer("c-"+string(method), "s1", rel)
			c.Sockets[0].Access = edit.Access{Method: method, User: &edit.User{UID: 1234, GID: 4321}}
			at := n.stagedPath(c.ID, "net/net1/a.sock")
			if canWrite(t, 1234, 4321, n.path("run/vsw/"+rel)) {
				t.Fatal("the user could write the socket before")
			}
			testkit.Must(t, n.Prepare(c))
			check := func() {
				t.Helper()
				// The old socket, which the user can write, stays until the new one has its rights.
				n.waitUntil(func() bool { return canWrite(t, 1234, 4321, at) && canWrite(t, 1235, 4321, at) == other },
					"the container's user or others of the group do not have the rights of the method")
				if canWrite(t, 1235, 4322, at) || !other && canWrite(t, 1235, 4321, at) {
					t.Error("another user can write the socket")
				}
				st, err := os.Stat(at)
				testkit.Must(t, err)
				if st.Mode().Perm()&0o002 != 0 {
					t.Errorf("the mode is %v", st.Mode())
				}
			}
			check()
			// The vswitch sets the mode late, and re-creates the socket.
			testkit.Must(t, os.Chmod(n.path("run/vsw/"+rel), 0o700))
			check()
			made()
			check()
		})
	}
	if f := n.events.failures(); len(f) > 0 {
		t.Errorf("failures: %v", f)
	}
}
