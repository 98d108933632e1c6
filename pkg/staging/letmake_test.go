// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/claims"
)

const (
	longID  = "e061661af3732d3722604b84a196956ad759f02ae00cda41a639ff6aff85a276"
	otherID = "f061661af3732d3722604b84a196956ad759f02ae00cda41a639ff6aff85a276"
)

// A CNI plugin made the attachment's directory: the container's user can make its
// socket there, and nobody else; other directories stay as they are.
func TestADirectoryThatWasMadeForTheSandbox(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("not root, which CI promises")
		}
		t.Skip("skipped: only root gives directories away")
	}
	defer unix.Umask(unix.Umask(0o022)) // other users pass the directories on the way
	for _, way := range []Way{ByACL, ByGroup, ByOwner} {
		t.Run(string(way), func(t *testing.T) {
			s, dir := open(t)
			must(t, os.Chmod(dir, 0o755))
			mine, admins := filepath.Join(dir, "run/vsw", longID[:12]+"-0011aabbccdd-net1"), filepath.Join(dir, "run/vsw/common/port1")
			for _, d := range []string{mine, admins} {
				must(t, os.MkdirAll(d, 0o755))
			}
			createdByCNI(t, s, mine, longID)
			prepare := func(id, sandbox, path string, uid int) {
				t.Helper()
				must(t, s.Prepare(Container{ID: id, SandboxID: sandbox, SocketDirs: []SocketDir{
					{Root: "/run/vsw", Rel: path, UID: uid, GID: uid + 1, Way: way, Granted: true}}}))
			}
			prepare("c1", longID, filepath.Base(mine), 1234)
			prepare("c1", longID, filepath.Base(mine), 1234)
			if !can(t, 1234, 1235, mine) {
				t.Error("the container's user cannot write the directory")
			}
			if can(t, 2234, 2235, mine) {
				t.Error("another user can")
			}
			// A second container of the pod runs as somebody else.
			prepare("c2", longID, filepath.Base(mine), 3234)
			if way == ByACL && !(can(t, 3234, 3235, mine) && can(t, 1234, 1235, mine)) {
				t.Error("one of the pod's two users cannot write the directory")
			}
			prepare("c3", otherID, "common/port1", 1234)
			if can(t, 1234, 1235, admins) {
				t.Error("an administrator's directory was given away")
			}
			// One that was made for the first container is the second's as well.
			prepare("c1", longID, "own", 1234)
			prepare("c2", longID, "own", 3234)
			if own := filepath.Join(dir, "run/vsw/own"); way == ByACL && !(can(t, 3234, 3235, own) && can(t, 1234, 1235, own)) {
				t.Error("one of the pod's two users cannot write the directory that was made")
			}
			must(t, s.RemoveSandbox(longID))
			if !exists(mine) || exists(filepath.Join(dir, "run/vsw/own")) {
				t.Error("too much or too little was removed")
			}
		})
	}
}

// createdByCNI records a directory as jackfield-cni does that creates it at ADD.
func createdByCNI(t *testing.T, s *Store, dir, sandbox string) {
	t.Helper()
	path := "/run/vsw/" + filepath.Base(dir)
	_, _, err := s.claims.ClaimDirectory(path, claims.Holder{Sandbox: sandbox, Adapter: claims.CNI, StateDir: "/run/jackfield/cni"})
	must(t, err)
	var st unix.Stat_t
	must(t, unix.Stat(dir, &st))
	must(t, s.claims.SetCreated(path, claims.Identity{Device: uint64(st.Dev), Inode: st.Ino}))
}
