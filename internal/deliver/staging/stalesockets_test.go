// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/edit"
)

// leaveSocket leaves a socket as a killed process does.
func leaveSocket(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	testkit.Must(t, err)
	l.SetUnlinkOnClose(false)
	testkit.Must(t, l.Close())
}

// Only sockets without a listener are removed, only for the successor of a container, and only from a
// directory that was created for the sandbox.
func TestSuccessorFindsNoStaleSocket(t *testing.T) {
	s, dir := newTestStore(t)
	own, admins := filepath.Join(dir, "run/vsw/own"), filepath.Join(dir, "run/vsw/common")
	testkit.Must(t, os.MkdirAll(admins, 0o755))
	prepare := func(id string, successor bool) {
		t.Helper()
		testkit.Must(t, s.Prepare(edit.Container{ID: id, SandboxID: longID, Successor: successor, SocketDirs: []edit.SocketDir{
			{Root: "/run/vsw", Rel: "own", Granted: true}, {Root: "/run/vsw", Rel: "common", Granted: true}}}))
	}
	prepare("c1", false)
	for _, d := range []string{own, admins} {
		leaveSocket(t, filepath.Join(d, "stale"))
	}
	live, err := net.Listen("unix", filepath.Join(own, "live"))
	testkit.Must(t, err)
	defer live.Close()
	seqpacket, err := net.Listen("unixpacket", filepath.Join(own, "memif"))
	testkit.Must(t, err)
	defer seqpacket.Close()
	testkit.Must(t, os.WriteFile(filepath.Join(own, "file"), nil, 0o600))
	testkit.Must(t, os.Symlink("/etc/passwd", filepath.Join(own, "link")))
	prepare("other", false)
	if !exists(filepath.Join(own, "stale")) {
		t.Error("a container that succeeds no other removed a socket")
	}
	prepare("c2", true)
	if exists(filepath.Join(own, "stale")) {
		t.Error("the stale socket is left")
	}
	for _, path := range []string{filepath.Join(own, "live"), filepath.Join(own, "memif"), filepath.Join(own, "file"), filepath.Join(admins, "stale")} {
		if !exists(path) {
			t.Errorf("%s was removed", path)
		}
	}
	if _, err := os.Lstat(filepath.Join(own, "link")); err != nil {
		t.Errorf("the symlink: %v", err)
	}
}
