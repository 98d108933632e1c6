// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/deliver/sockdir"
	"github.com/jackfield/jackfield/internal/edit"
)

const (
	longID  = "e061661af3732d3722604b84a196956ad759f02ae00cda41a639ff6aff85a276"
	otherID = "f061661af3732d3722604b84a196956ad759f02ae00cda41a639ff6aff85a276"
)

// In a directory that a CNI plugin created for the attachment, the container's user can create
// its socket, and nobody else can. Other directories are unchanged.
func TestGrantInDirectoryCreatedForSandbox(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("not root, which CI promises")
		}
		t.Skip("skipped: only root gives directories away")
	}
	defer unix.Umask(unix.Umask(0o022)) // other users can enter the parent directories
	for _, method := range []edit.AccessMethod{edit.ByACL, edit.ByGroup, edit.ByOwner} {
		t.Run(string(method), func(t *testing.T) {
			s, dir := newTestStore(t)
			testkit.Must(t, os.Chmod(dir, 0o755))
			mine, admins := filepath.Join(dir, "run/vsw", longID[:12]+"-0011aabbccdd-net1"), filepath.Join(dir, "run/vsw/common/port1")
			for _, d := range []string{mine, admins} {
				testkit.Must(t, os.MkdirAll(d, 0o755))
			}
			claimAsCNI(t, s, mine, longID)
			prepare := func(id, sandbox, path string, uid uint32) {
				t.Helper()
				testkit.Must(t, s.Prepare(edit.Container{ID: id, SandboxID: sandbox, SocketDirs: []edit.SocketDir{
					{Root: "/run/vsw", Rel: path, Access: edit.Access{Method: method, User: &edit.User{UID: uid, GID: uid + 1}}, Granted: true}}}))
			}
			prepare("c1", longID, filepath.Base(mine), 1234)
			prepare("c1", longID, filepath.Base(mine), 1234)
			if !canWrite(t, 1234, 1235, mine) {
				t.Error("the container's user cannot write the directory")
			}
			if canWrite(t, 2234, 2235, mine) {
				t.Error("another user can write the directory")
			}
			// A second container of the pod runs as another user.
			prepare("c2", longID, filepath.Base(mine), 3234)
			if method == edit.ByACL && !(canWrite(t, 3234, 3235, mine) && canWrite(t, 1234, 1235, mine)) {
				t.Error("one of the pod's two users cannot write the directory")
			}
			prepare("c3", otherID, "common/port1", 1234)
			if canWrite(t, 1234, 1235, admins) {
				t.Error("the user can write an administrator's directory")
			}
			// A directory created for the first container is granted to the second one, too.
			prepare("c1", longID, "own", 1234)
			prepare("c2", longID, "own", 3234)
			if own := filepath.Join(dir, "run/vsw/own"); method == edit.ByACL && !(canWrite(t, 3234, 3235, own) && canWrite(t, 1234, 1235, own)) {
				t.Error("one of the pod's two users cannot write the created directory")
			}
			testkit.Must(t, s.RemoveSandbox(longID))
			if !exists(mine) || exists(filepath.Join(dir, "run/vsw/own")) {
				t.Error("wrong directories were removed")
			}
		})
	}
}

// claimAsCNI records a directory as created, like jackfield-cni at ADD.
func claimAsCNI(t *testing.T, s *Store, dir, sandbox string) {
	t.Helper()
	path := "/run/vsw/" + filepath.Base(dir)
	holder := sockdir.Holder{Sandbox: sandbox, Adapter: sockdir.CNI, StateDir: "/run/jackfield/cni"}
	_, err := s.sockets.dirs.Claim(path, holder, true)
	testkit.Must(t, err)
	f, err := os.Open(dir)
	testkit.Must(t, err)
	defer f.Close()
	_, err = s.sockets.dirs.Limit(path, int(f.Fd()), holder, 0)
	testkit.Must(t, err)
}
