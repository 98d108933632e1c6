// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// Invalid IDs from a runtime remove nothing outside of the state directory.
func TestRemoveChecksIDs(t *testing.T) {
	s, dir := newTestStore(t)
	precious := filepath.Join(dir, "run/precious")
	testkit.Must(t, os.MkdirAll(filepath.Join(precious, "x.container"), 0o755))
	testkit.Must(t, os.WriteFile(filepath.Join(precious, "file"), nil, 0o600))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "run/c.container"), nil, 0o600))
	testkit.Must(t, s.Prepare(edit.Container{ID: "c1", SandboxID: "s1"}))
	for name, remove := range map[string]func() error{
		"sandbox":                func() error { return s.RemoveSandbox("../../precious") },
		"idle sandbox":           func() error { return s.RemoveIdleSandbox("../../precious") },
		"container":              func() error { return s.RemoveContainer("s1", "../../precious") },
		"container of a sandbox": func() error { return s.RemoveContainer("../..", "c") },
		"all sandboxes":          func() error { return s.RemoveSandbox(".") },
		"no sandbox":             func() error { return s.RemoveSandbox("") },
	} {
		if err := remove(); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v, want an invalid argument", name, err)
		}
	}
	for _, left := range []string{"run/precious/file", "run/precious/x.container", "run/c.container", "run/jackfield/sandboxes/s1/c1.container"} {
		if !exists(filepath.Join(dir, left)) {
			t.Errorf("%s was removed", left)
		}
	}
}

// A state directory, or a directory in it, that another user owns or can write is not used: its records say what root removes.
func TestOpenChecksStateDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root gives directories away")
	}
	for _, sub := range []string{"", "containers", "sandboxes", "claims"} {
		for what, spoil := range map[string]func(string) error{
			"owner": func(d string) error { return os.Chown(d, 1234, 0) },
			"mode":  func(d string) error { return os.Chmod(d, 0o777) },
			"type":  func(d string) error { return errors.Join(os.RemoveAll(d), os.Symlink("/tmp", d)) },
		} {
			s, dir := newTestStore(t)
			testkit.Must(t, s.Close())
			d := filepath.Join(dir, "run/jackfield", sub)
			testkit.Must(t, spoil(d))
			host, err := hostfs.New(dir)
			testkit.Must(t, err)
			if _, err := Open(host, "/run/jackfield", Options{Mode: ModeDirectory}); !errdefs.IsPermissionDenied(err) {
				t.Errorf("%s of %q: %v, want permission denied", what, sub, err)
			}
		}
	}
}

// mountFlags returns the flags of the mount that a path lies on, without opening the file.
func mountFlags(t *testing.T, path string) int64 {
	t.Helper()
	var fs unix.Statfs_t
	testkit.Must(t, unix.Statfs(path, &fs))
	return int64(fs.Flags)
}

// Every mount in a staging directory is restricted, also one that is added later, and sockets of
// the host are read-only.
func TestStagedMountsAreRestricted(t *testing.T) {
	n := newNode(t)
	n.listen("run/vsw/a/a.sock", "a")
	n.listen("run/vsw/b/b.sock", "b")
	c := newContainer("c1", "s1", "a/a.sock")
	c.Dirs = append(c.Dirs, edit.Dir{Path: "net/net2"}, edit.Dir{Path: "net/net3"}, edit.Dir{Path: "net/net4"})
	c.SocketDirs = []edit.SocketDir{{Root: "/run/vsw", Rel: "own", At: "net/net2"}}
	testkit.Must(t, n.Prepare(c))
	c.Sockets = append(c.Sockets, edit.Socket{Root: "/run/vsw", Rel: "b/b.sock", At: []string{"net/net3/b.sock"}})
	c.SocketDirs = append(c.SocketDirs, edit.SocketDir{Root: "/run/vsw", Rel: "late", At: "net/net4"})
	_, err := n.Update(c)
	testkit.Must(t, err)
	const noPrograms = unix.ST_NOSUID | unix.ST_NODEV | unix.ST_NOEXEC
	for at, want := range map[string]int64{"net/net1/a.sock": noPrograms | unix.ST_RDONLY, "net/net3/b.sock": noPrograms | unix.ST_RDONLY, "net/net2": noPrograms, "net/net4": noPrograms} {
		if got := mountFlags(t, n.stagedPath("c1", at)); got&want != want {
			t.Errorf("%s: mount flags %#x, want %#x", at, got, want)
		}
	}
	n.listen("run/vsw/a/a.sock", "again")
	n.wantAnswer(n.stagedPath("c1", "net/net1/a.sock"), "again")
	if got, want := mountFlags(t, n.stagedPath("c1", "net/net1/a.sock")), int64(noPrograms|unix.ST_RDONLY); got&want != want {
		t.Errorf("a socket that was bound again: mount flags %#x, want %#x", got, want)
	}
}

// A scratch file system has room for sockets only, runs no programs, and belongs to the container's
// user.
func TestScratchIsBounded(t *testing.T) {
	n := newNode(t)
	n.listen("run/vsw/a/a.sock", "a")
	c := newContainerOf("c1", "s1", "a/a.sock", edit.ByACL, 1234, 4321)
	c.Dirs = []edit.Dir{{Path: "net"}, {Path: "net/net1", Scratch: true}, {Path: "free", Scratch: true}}
	testkit.Must(t, n.Prepare(c))
	for at, want := range map[string]struct {
		mode     os.FileMode
		uid, gid uint32
	}{"net/net1": {0o755 | os.ModeDir, 1234, 4321}, "free": {0o777 | os.ModeDir | os.ModeSticky, 0, 0}} {
		path := n.stagedPath("c1", at)
		var fs unix.Statfs_t
		testkit.Must(t, unix.Statfs(path, &fs))
		const noPrograms = unix.ST_NOSUID | unix.ST_NODEV | unix.ST_NOEXEC
		if size := fs.Blocks * uint64(fs.Bsize); fs.Type != unix.TMPFS_MAGIC || size != 64<<10 || fs.Files != 64 || fs.Flags&noPrograms != noPrograms {
			t.Errorf("%s: type %#x, %d bytes, %d inodes, flags %#x", at, fs.Type, size, fs.Files, fs.Flags)
		}
		st, err := os.Stat(path)
		testkit.Must(t, err)
		var raw unix.Stat_t
		testkit.Must(t, unix.Stat(path, &raw))
		if st.Mode() != want.mode || raw.Uid != want.uid || raw.Gid != want.gid {
			t.Errorf("%s: %v of %d:%d, want %v of %d:%d", at, st.Mode(), raw.Uid, raw.Gid, want.mode, want.uid, want.gid)
		}
	}
}

// Group 0 is root's group on the host: a container with that group is granted no socket by it.
func TestGroupZeroIsNotGranted(t *testing.T) {
	n, path := newRightsNode(t, "p/a.sock")
	testkit.Must(t, os.Chown(path, 7, 8))
	before := accessOf(t, path)
	if err := n.Prepare(newContainerOf("c1", "s1", "p/a.sock", edit.ByGroup, 1234, 0)); err == nil {
		t.Error("group 0 was granted access to a socket")
	}
	if after := accessOf(t, path); after != before {
		t.Errorf("access is %s, was %s before", after, before)
	}
}

// A mount in a staging directory that no record names is unmounted, and its files stay.
func TestRemoveEntersNoMount(t *testing.T) {
	n := newNode(t)
	n.listen("run/vsw/a/a.sock", "a")
	testkit.Must(t, n.Prepare(newContainer("c1", "s1", "a/a.sock")))
	precious := n.path("precious")
	testkit.Must(t, os.MkdirAll(filepath.Join(precious, "sub"), 0o755))
	testkit.Must(t, os.WriteFile(filepath.Join(precious, "sub/file"), nil, 0o600))
	testkit.Must(t, os.Mkdir(n.stagedPath("c1", "foreign"), 0o755))
	testkit.Must(t, unix.Mount(precious, n.stagedPath("c1", "foreign"), "", unix.MS_BIND, ""))
	testkit.Must(t, os.Symlink(precious, n.stagedPath("c1", "link")))
	testkit.Must(t, n.RemoveContainer("s1", "c1"))
	if !exists(filepath.Join(precious, "sub/file")) {
		t.Error("a file in the mounted file system was removed")
	}
	if exists(n.stagedPath("c1", "")) || len(n.mounts()) > 0 {
		t.Errorf("left: %v", n.mounts())
	}
}

// Neither a record nor the file below a mount is written through a symlink.
func TestWritesFollowNoSymlink(t *testing.T) {
	dir := t.TempDir()
	theirs, missing := filepath.Join(dir, "theirs"), filepath.Join(dir, "missing")
	testkit.Must(t, os.WriteFile(theirs, []byte("theirs"), 0o600))
	for _, to := range []string{theirs, missing} {
		link := filepath.Join(dir, "link")
		testkit.Must(t, os.Symlink(to, link))
		if err := hostfs.CreateFile(link, []byte("ours"), 0o600); !errors.Is(err, unix.ELOOP) {
			t.Errorf("create: %v, want ELOOP", err)
		}
		testkit.Must(t, createPlaceholder(link))
		if st, err := os.Lstat(link); err != nil || !st.Mode().IsRegular() || st.Size() > 0 {
			t.Errorf("placeholder: %v, %v, want a separate empty file", st, err)
		}
		testkit.Must(t, os.Remove(link))
	}
	if got, err := os.ReadFile(theirs); err != nil || string(got) != "theirs" {
		t.Errorf("the target of the symlink has content %q: %v", got, err)
	}
	if exists(missing) {
		t.Error("a file was created at the target of the symlink")
	}
}
