// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// The IDs of a runtime that lies remove nothing outside of the state directory.
func TestRemoveChecksIDs(t *testing.T) {
	s, dir := open(t)
	precious := filepath.Join(dir, "run/precious")
	must(t, os.MkdirAll(filepath.Join(precious, "x.container"), 0o755))
	must(t, os.WriteFile(filepath.Join(precious, "file"), nil, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "run/c.container"), nil, 0o600))
	must(t, s.Prepare(Container{ID: "c1", SandboxID: "s1"}))
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
			s, dir := open(t)
			must(t, s.Close())
			d := filepath.Join(dir, "run/jackfield", sub)
			must(t, spoil(d))
			host, err := hostfs.New(dir)
			must(t, err)
			if _, err := Open(host, "/run/jackfield", Options{Mode: Directories}); !errdefs.IsPermissionDenied(err) {
				t.Errorf("%s of %q: %v, want permission denied", what, sub, err)
			}
		}
	}
}

// mountFlags are those of the mount that a path lies on, without opening what is there.
func mountFlags(t *testing.T, path string) int64 {
	t.Helper()
	var fs unix.Statfs_t
	must(t, unix.Statfs(path, &fs))
	return int64(fs.Flags)
}

// All mounts in a staging directory are restricted, each by itself, also those that come late, and sockets of the host cannot be written over.
func TestStagedMountsAreRestricted(t *testing.T) {
	n := newNode(t)
	n.listen("run/vsw/a/a.sock", "a")
	n.listen("run/vsw/b/b.sock", "b")
	c := one("c1", "s1", "a/a.sock")
	c.Dirs = append(c.Dirs, Dir{Path: "net/net2"}, Dir{Path: "net/net3"}, Dir{Path: "net/net4"})
	c.SocketDirs = []SocketDir{{Root: "/run/vsw", Rel: "own", At: "net/net2", UID: -1, GID: -1}}
	must(t, n.Prepare(c))
	c.Sockets = append(c.Sockets, Socket{Root: "/run/vsw", Rel: "b/b.sock", At: []string{"net/net3/b.sock"}})
	c.SocketDirs = append(c.SocketDirs, SocketDir{Root: "/run/vsw", Rel: "late", At: "net/net4", UID: -1, GID: -1})
	_, err := n.Update(c)
	must(t, err)
	const noPrograms = unix.ST_NOSUID | unix.ST_NODEV | unix.ST_NOEXEC
	for at, want := range map[string]int64{"net/net1/a.sock": noPrograms | unix.ST_RDONLY, "net/net3/b.sock": noPrograms | unix.ST_RDONLY, "net/net2": noPrograms, "net/net4": noPrograms} {
		if got := mountFlags(t, n.in("c1", at)); got&want != want {
			t.Errorf("%s: mount flags %#x, want %#x", at, got, want)
		}
	}
	n.listen("run/vsw/a/a.sock", "again")
	n.answers(n.in("c1", "net/net1/a.sock"), "again")
	if got, want := mountFlags(t, n.in("c1", "net/net1/a.sock")), int64(noPrograms|unix.ST_RDONLY); got&want != want {
		t.Errorf("a socket that was bound again: mount flags %#x, want %#x", got, want)
	}
}

// A container's own small file system has room for sockets, and neither for data nor for programs, and is its user's.
func TestScratchIsBounded(t *testing.T) {
	n := newNode(t)
	n.listen("run/vsw/a/a.sock", "a")
	c := as("c1", "s1", "a/a.sock", ByACL, 1234, 4321)
	c.Dirs = []Dir{{Path: "net"}, {Path: "net/net1", Scratch: true}, {Path: "free", Scratch: true}}
	must(t, n.Prepare(c))
	for at, want := range map[string]struct {
		mode     os.FileMode
		uid, gid uint32
	}{"net/net1": {0o755 | os.ModeDir, 1234, 4321}, "free": {0o777 | os.ModeDir | os.ModeSticky, 0, 0}} {
		path := n.in("c1", at)
		var fs unix.Statfs_t
		must(t, unix.Statfs(path, &fs))
		const noPrograms = unix.ST_NOSUID | unix.ST_NODEV | unix.ST_NOEXEC
		if size := fs.Blocks * uint64(fs.Bsize); fs.Type != unix.TMPFS_MAGIC || size != 64<<10 || fs.Files != 64 || fs.Flags&noPrograms != noPrograms {
			t.Errorf("%s: type %#x, %d bytes, %d inodes, flags %#x", at, fs.Type, size, fs.Files, fs.Flags)
		}
		st, err := os.Stat(path)
		must(t, err)
		var raw unix.Stat_t
		must(t, unix.Stat(path, &raw))
		if st.Mode() != want.mode || raw.Uid != want.uid || raw.Gid != want.gid {
			t.Errorf("%s: %v of %d:%d, want %v of %d:%d", at, st.Mode(), raw.Uid, raw.Gid, want.mode, want.uid, want.gid)
		}
	}
}

// Group 0 is the host's own: a container of that group gets no socket by it.
func TestGroupZeroIsNotGiven(t *testing.T) {
	n, path := newRightsNode(t, "p/a.sock")
	must(t, os.Chown(path, 7, 8))
	before := accessOf(t, path)
	if err := n.Prepare(as("c1", "s1", "p/a.sock", ByGroup, 1234, 0)); err == nil {
		t.Error("a socket was given to group 0")
	}
	if after := accessOf(t, path); after != before {
		t.Errorf("the socket has %s, before %s", after, before)
	}
}

// What is mounted in a staging directory without a record is unmounted, and not emptied.
func TestRemoveEntersNoMount(t *testing.T) {
	n := newNode(t)
	n.listen("run/vsw/a/a.sock", "a")
	must(t, n.Prepare(one("c1", "s1", "a/a.sock")))
	precious := n.path("precious")
	must(t, os.MkdirAll(filepath.Join(precious, "sub"), 0o755))
	must(t, os.WriteFile(filepath.Join(precious, "sub/file"), nil, 0o600))
	must(t, os.Mkdir(n.in("c1", "foreign"), 0o755))
	must(t, unix.Mount(precious, n.in("c1", "foreign"), "", unix.MS_BIND, ""))
	must(t, os.Symlink(precious, n.in("c1", "link")))
	must(t, n.RemoveContainer("s1", "c1"))
	if !exists(filepath.Join(precious, "sub/file")) {
		t.Error("a file of what was mounted there was removed")
	}
	if exists(n.in("c1", "")) || len(n.mounts()) > 0 {
		t.Errorf("left: %v", n.mounts())
	}
}

// A symlink that took the place of a directory between two looks is not followed.
func TestOpenToEmptyFollowsNoSymlink(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "neighbour"), 0o755))
	must(t, os.Symlink("neighbour", filepath.Join(dir, "link")))
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fd)
	if fd, err := openToEmpty(fd, "link"); !errors.Is(err, unix.ELOOP) {
		t.Errorf("got %d, %v; want ELOOP", fd, err)
	}
	got, err := openToEmpty(fd, "neighbour")
	must(t, err)
	unix.Close(got)
}

// Neither a record nor the file below a mount is written through a symlink.
func TestWritesFollowNoSymlink(t *testing.T) {
	dir := t.TempDir()
	theirs, missing := filepath.Join(dir, "theirs"), filepath.Join(dir, "missing")
	must(t, os.WriteFile(theirs, []byte("theirs"), 0o600))
	for _, to := range []string{theirs, missing} {
		link := filepath.Join(dir, "link")
		must(t, os.Symlink(to, link))
		if err := create(link, []byte("ours"), 0o600); !errors.Is(err, unix.ELOOP) {
			t.Errorf("create: %v, want ELOOP", err)
		}
		must(t, placeholder(link))
		if st, err := os.Lstat(link); err != nil || !st.Mode().IsRegular() || st.Size() > 0 {
			t.Errorf("placeholder: %v, %v, want an empty file of its own", st, err)
		}
		must(t, os.Remove(link))
	}
	if got, err := os.ReadFile(theirs); err != nil || string(got) != "theirs" {
		t.Errorf("the file behind the symlink holds %q: %v", got, err)
	}
	if exists(missing) {
		t.Error("a file was created behind the symlink")
	}
}
