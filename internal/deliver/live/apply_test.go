// SPDX-License-Identifier: Apache-2.0

package live

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// requireRoot skips a test that creates namespaces, mounts and nodes.
func requireRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("not root, which CI is")
	}
	t.Skip("skipped: namespaces and device nodes need root")
}

// startTarget starts a process in a new mount namespace, and with flags in a new user namespace. The
// root of the returned target is an empty directory.
func startTarget(t *testing.T, flags uintptr) Target {
	t.Helper()
	requireRoot(t)
	root := t.TempDir()
	for dir := root; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | flags}
	if flags&unix.CLONE_NEWUSER != 0 {
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: 100000, Size: 65536}}
		cmd.SysProcAttr.GidMappings = cmd.SysProcAttr.UidMappings
		if err := os.Chown(root, 100000, 100000); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return Target{Pid: cmd.Process.Pid, Root: root}
}

// inside returns a path in the root of the target.
func (t Target) inside(name string) string {
	return fmt.Sprintf("/proc/%d/root%s", t.Pid, filepath.Join(t.Root, name))
}

func TestApplyDeliversNodesAndMountsBelowRoot(t *testing.T) {
	for name, flags := range map[string]uintptr{"root": 0, "user namespace": unix.CLONE_NEWUSER} {
		t.Run(name, func(t *testing.T) {
			target := startTarget(t, flags)
			src := t.TempDir()
			if err := os.WriteFile(filepath.Join(src, "file"), []byte("here"), 0o644); err != nil {
				t.Fatal(err)
			}
			// Create a dangling symlink, and a symlink out of the root.
			for from, to := range map[string]string{"run-link": "run", "out": "/../../../../etc"} {
				if err := os.Symlink(to, filepath.Join(target.Root, from)); err != nil {
					t.Fatal(err)
				}
			}
			set := &edit.Set{
				Devices: []edit.Device{{Path: "/dev/x", HostPath: "/dev/null", Type: "c", Major: 1, Minor: 3, Access: edit.NoAccess}},
				Mounts: []edit.Mount{
					{Destination: "/run-link/data", Source: src, Options: []string{"bind", "ro", "noexec"}},
					{Destination: "/out/data", Source: src + "/file", Options: []string{"bind"}},
				},
			}
			for range 2 { // the second time it changes nothing
				if err := Apply(hostfs.Host(), target, set); err != nil {
					t.Error(err)
				}
			}
			for _, name := range []string{"/run/data/file", "/etc/data"} {
				if got, err := os.ReadFile(target.inside(name)); err != nil || string(got) != "here" {
					t.Errorf("%s: %q, %v", name, got, err)
				}
			}
			if err := os.WriteFile(target.inside("/run/data/new"), nil, 0o600); !errors.Is(err, unix.EROFS) {
				t.Error(err)
			}
			var st unix.Stat_t
			if err := unix.Stat(target.inside("/dev/x"), &st); err != nil || st.Rdev != unix.Mkdev(1, 3) || st.Mode&unix.S_IFMT != unix.S_IFCHR {
				t.Errorf("%+v, %v", st, err)
			}
			info, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", target.Pid))
			if n := bytes.Count(info, []byte(target.Root+"/run/data ")); err != nil || n != 1 {
				t.Errorf("%d mounts, %v", n, err)
			}
			// None of the mounts is visible on the host.
			if _, err := os.Stat(filepath.Join(target.Root, "run/data/file")); !os.IsNotExist(err) {
				t.Error(err)
			}
			if _, err := os.Stat("/etc/data"); !os.IsNotExist(err) {
				t.Error(err)
			}
		})
	}
}

// The modes of created files do not depend on the umask of the runtime.
func TestApplyIgnoresUmask(t *testing.T) {
	target, src := startTarget(t, 0), t.TempDir()
	set := &edit.Set{
		Devices: []edit.Device{{Path: "/dev/sub/x", Type: "c", Major: 240, Minor: 7, Access: edit.NoAccess}},
		Mounts:  []edit.Mount{{Destination: "/var/run/jackfield/net", Source: src, Options: []string{"bind"}}, {Destination: "/srv/file", Source: "/dev/null", Options: []string{"bind"}}},
	}
	before := unix.Umask(0o077)
	err := Apply(hostfs.Host(), target, set)
	if unix.Umask(before) != 0o077 {
		t.Error("the umask of the process changed")
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]uint32{"/var": 0o755, "/var/run": 0o755, "/var/run/jackfield": 0o755, "/dev/sub": 0o755, "/dev/sub/x": 0o666} {
		var st unix.Stat_t
		if err := unix.Stat(target.inside(name), &st); err != nil || st.Mode&0o7777 != want {
			t.Errorf("%s: mode %o, %v, want %o", name, st.Mode&0o7777, err, want)
		}
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(target.Root, "srv/file"), &st); err != nil || st.Mode&0o7777 != 0o644 {
		t.Errorf("mount point: mode %o, %v", st.Mode&0o7777, err)
	}
}

// A node with another owner or mode than the host's node is created.
func TestApplyCreatesNodes(t *testing.T) {
	target := startTarget(t, 0)
	mode, uid := os.FileMode(0o640), uint32(1234)
	set := &edit.Set{Devices: []edit.Device{
		{Path: "/dev/mine", HostPath: "/dev/null", Type: "c", Major: 1, Minor: 3, FileMode: &mode, UID: &uid, Access: edit.NoAccess},
		{Path: "/dev/nowhere", Type: "c", Major: 240, Minor: 7, Access: edit.NoAccess},
		{Path: "/dev/pipe", Type: "p"},
	}}
	if err := Apply(hostfs.Host(), target, set); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(target.inside("/dev/mine"), &st); err != nil || st.Uid != 1234 || st.Mode != unix.S_IFCHR|0o640 || st.Rdev != unix.Mkdev(1, 3) {
		t.Errorf("%+v, %v", st, err)
	}
	if err := unix.Stat(target.inside("/dev/nowhere"), &st); err != nil || st.Mode != unix.S_IFCHR|0o666 || st.Rdev != unix.Mkdev(240, 7) {
		t.Errorf("%+v, %v", st, err)
	}
	set.Devices[0].Minor = 5
	if err := Apply(hostfs.Host(), target, set); !errdefs.IsConflict(err) {
		t.Error(err)
	}
}

// A node at a dangling symlink of the image is created where the symlink leads to, as a mount point is.
func TestApplyCreatesNodeAtDanglingSymlink(t *testing.T) {
	target := startTarget(t, 0)
	if err := os.Mkdir(filepath.Join(target.Root, "dev"), 0o755); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"one": "two", "two": "/dev/sub/three", "loop": "loop"} {
		if err := os.Symlink(to, filepath.Join(target.Root, "dev", link)); err != nil {
			t.Fatal(err)
		}
	}
	set := &edit.Set{Devices: []edit.Device{{Path: "/dev/one", Type: "c", Major: 240, Minor: 7, Access: edit.NoAccess}}}
	for range 2 {
		if err := Apply(hostfs.Host(), target, set); err != nil {
			t.Fatal(err)
		}
	}
	var st unix.Stat_t
	if err := unix.Lstat(target.inside("/dev/sub/three"), &st); err != nil || st.Rdev != unix.Mkdev(240, 7) {
		t.Errorf("%+v, %v", st, err)
	}
	set.Devices[0].Path = "/dev/loop"
	if err := Apply(hostfs.Host(), target, set); err == nil {
		t.Error("a node was created at a symlink to itself")
	}
}

// The host's node is only bound if it has the edit's device number. Otherwise a node is created, or, in a user namespace, the request fails.
func TestApplyChecksDeviceNumber(t *testing.T) {
	set := &edit.Set{Devices: []edit.Device{{Path: "/dev/x", HostPath: "/dev/null", Type: "c", Major: 1, Minor: 5}}}
	target := startTarget(t, 0)
	if err := Apply(hostfs.Host(), target, set); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(target.inside("/dev/x"), &st); err != nil || st.Rdev != unix.Mkdev(1, 5) {
		t.Errorf("number %d:%d, %v; want 1:5", unix.Major(st.Rdev), unix.Minor(st.Rdev), err)
	}
	if err := Apply(hostfs.Host(), startTarget(t, unix.CLONE_NEWUSER), set); !errdefs.IsConflict(err) {
		t.Errorf("in a user namespace: %v", err)
	}
}

// The mount of a device node is nosuid and noexec, whatever the options of the host's file system are.
func TestApplyRestrictsBoundNode(t *testing.T) {
	target := startTarget(t, unix.CLONE_NEWUSER)
	dir := t.TempDir()
	if err := unix.Mount("test", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	defer unix.Umask(unix.Umask(0))
	if err := unix.Mknod(dir+"/null", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
		t.Fatal(err)
	}
	set := &edit.Set{Devices: []edit.Device{{Path: "/dev/x", HostPath: dir + "/null", Type: "c", Major: 1, Minor: 3, Access: edit.NoAccess}}}
	if err := Apply(hostfs.Host(), target, set); err != nil {
		t.Fatal(err)
	}
	var fs unix.Statfs_t
	const restricted = unix.ST_NOSUID | unix.ST_NOEXEC
	if err := unix.Statfs(target.inside("/dev/x"), &fs); err != nil || fs.Flags&restricted != restricted || fs.Flags&unix.ST_NODEV != 0 {
		t.Errorf("mount flags %#x, %v; want nosuid and noexec, and no nodev", fs.Flags, err)
	}
}

// A magic link is refused as such (ELOOP), not only because current kernels let none leave a root (EXDEV).
func TestOpenInRootFollowsNoMagicLink(t *testing.T) {
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(root)
	for _, name := range []string{"/proc/self/exe", "/proc/self/root/etc"} {
		if fd, err := openInRoot(root, name); !errors.Is(err, unix.ELOOP) {
			t.Errorf("openInRoot(%q) = %d, %v; want ELOOP", name, fd, err)
		}
	}
}

func TestApplyRefusesInvalidTargetsAndMounts(t *testing.T) {
	target := startTarget(t, 0)
	src := t.TempDir()
	if err := os.Symlink(src, src+"/link"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(target.Root, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		target Target
		mount  edit.Mount
		want   func(error) bool
	}{
		"no process":      {Target{Root: "/"}, edit.Mount{}, errdefs.IsInvalidArgument},
		"own namespace":   {Target{Pid: os.Getpid(), Root: "/"}, edit.Mount{}, errdefs.IsFailedPrecondition},
		"relative root":   {Target{Pid: target.Pid, Root: "x"}, edit.Mount{}, errdefs.IsInvalidArgument},
		"the root itself": {target, edit.Mount{Destination: "/a/..", Source: src}, errdefs.IsInvalidArgument},
		"a file there":    {target, edit.Mount{Destination: "/file", Source: src}, errdefs.IsConflict},
		"a symlink":       {target, edit.Mount{Destination: "/a", Source: src + "/link", Origin: edit.Origin{Source: edit.Attachment}}, errdefs.IsPermissionDenied},
		"no source":       {target, edit.Mount{Destination: "/a", Source: src + "/none"}, errdefs.IsNotFound},
		"unknown option":  {target, edit.Mount{Destination: "/a", Source: src, Options: []string{"bind", "size=1"}}, errdefs.IsInvalidArgument},
	} {
		if err := Apply(hostfs.Host(), tc.target, &edit.Set{Mounts: []edit.Mount{tc.mount}}); err == nil || !tc.want(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestApplyMountsNewFileSystem(t *testing.T) {
	target := startTarget(t, 0)
	set := &edit.Set{Mounts: []edit.Mount{{Destination: "/tmp", Source: "tmpfs", Type: "tmpfs", Options: []string{"size=64k", "ro"}}}}
	if err := Apply(hostfs.Host(), target, set); err != nil {
		t.Fatal(err)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(target.inside("/tmp"), &fs); err != nil || fs.Type != unix.TMPFS_MAGIC || fs.Flags&unix.ST_RDONLY == 0 || fs.Blocks*uint64(fs.Bsize) != 64<<10 {
		t.Errorf("%+v, %v", fs, err)
	}
}

func TestUndeliverableEdits(t *testing.T) {
	set := &edit.Set{
		Env:   []edit.Env{{Name: "A"}, {Name: "JACKFIELD_X", Origin: edit.Origin{Source: edit.SourceJackfield}}},
		Hooks: []edit.Hook{{Stage: edit.Poststop, Path: "/h"}}, GIDs: []edit.GID{{ID: 7}},
		NetDevices: []edit.NetDevice{{HostName: "eth1"}}, RDT: &edit.RDT{},
	}
	err := errors.Join(UndeliverableEdits(set, "")...)
	for _, want := range []string{`variable "A"`, `poststop hook "/h"`, "group 7", `device "eth1"`, "RDT"} {
		if err == nil || !errdefs.IsNotImplemented(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if strings.Contains(err.Error(), "JACKFIELD") {
		t.Error(err)
	}
}

// A container that shares a directory can replace a new file there at once. The owner of the replacement stays.
func TestReplacedFileKeepsItsOwner(t *testing.T) {
	requireRoot(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for name, link := range map[string]bool{"a file": false, "a symlink": true} {
		dir := t.TempDir()
		secret := filepath.Join(dir, "secret")
		if err := errors.Join(os.WriteFile(secret, []byte("x"), 0o600), os.Chown(dir, 1234, 4321)); err != nil {
			t.Fatal(err)
		}
		root, err := unix.Open(dir, unix.O_PATH, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(root)
		created := unix.Stat_t{}
		for _, o := range []*owner{nil, {uid: 1234, gid: 4321}} {
			fd, err := openOrCreate(root, "/new", o, func(parent int, base string) error {
				err := unix.Mknodat(parent, base, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3)))
				err = errors.Join(err, unix.Fstatat(parent, base, &created, 0), unix.Unlinkat(parent, base, 0))
				if link {
					return errors.Join(err, unix.Symlinkat("secret", parent, base))
				}
				return errors.Join(err, unix.Linkat(parent, "secret", parent, base, 0))
			})
			if err != nil {
				t.Fatal(err)
			}
			unix.Close(fd)
			var st unix.Stat_t
			if err := errors.Join(unix.Stat(secret, &st), os.Remove(filepath.Join(dir, "new"))); err != nil || st.Uid != 0 || st.Gid != 0 {
				t.Errorf("%s, %+v: the replacement belongs to %d:%d, %v", name, o, st.Uid, st.Gid, err)
			}
			if created.Uid != 1234 || created.Gid != 4321 {
				t.Errorf("%s, %+v: the new node belongs to %d:%d", name, o, created.Uid, created.Gid)
			}
		}
	}
}
