// SPDX-License-Identifier: Apache-2.0

package sockdir

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// mountHost mounts a file system for a host root, in a mount namespace of its own.
func mountHost(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("not root, which CI promises")
		}
		t.Skip("skipped: only root mounts")
	}
	runtime.LockOSThread() // for good: the thread, and its mounts, end with the test
	testkit.Must(t, unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS))
	testkit.Must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	top := t.TempDir()
	testkit.Must(t, unix.Mount("test", top, "tmpfs", 0, ""))
	t.Cleanup(func() { testkit.Must(t, unix.Unmount(top, unix.MNT_DETACH)) })
	return top
}

func open(t *testing.T, path string) int {
	t.Helper()
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	testkit.Must(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func identity(t *testing.T, path string) hostfs.FileID {
	t.Helper()
	var st unix.Stat_t
	testkit.Must(t, unix.Lstat(path, &st))
	return hostfs.FileID{Device: uint64(st.Dev), Inode: st.Ino}
}

// The tmpfs has the owner, the mode and the SELinux label of the directory. unmountTmpfs removes
// the mount that the claim has, once or twice, and no other.
func TestMountHasAttributesOfDirectory(t *testing.T) {
	top := mountHost(t)
	host, err := hostfs.New(top)
	testkit.Must(t, err)
	d, h := New(host, "/claims"), Holder{Sandbox: "s1"}
	_, err = d.Claim("/dir", h, true)
	testkit.Must(t, err)
	dir := filepath.Join(top, "dir")
	testkit.Must(t, os.Mkdir(dir, 0o700))
	testkit.Must(t, os.Chmod(dir, 0o775))
	testkit.Must(t, os.Chown(dir, 12, 34))
	const label = "system_u:object_r:container_file_t:s0"
	labelled := unix.Setxattr(dir, "security.selinux", []byte(label), 0) == nil
	created := identity(t, dir)

	root, err := d.Limit("/dir", open(t, dir), h, 64<<10)
	testkit.Must(t, err)
	mounted, err := hostfs.IDOf(root)
	testkit.Must(t, errors.Join(err, unix.Close(root)))
	claim, err := d.readClaim("/dir")
	testkit.Must(t, err)
	if claim.Created == nil || *claim.Created != created || claim.Mounted == nil || *claim.Mounted != mounted || identity(t, dir) != mounted || mounted == created {
		t.Errorf("claim %+v, created %v, mounted %v, found %v", claim, created, mounted, identity(t, dir))
	}
	for _, id := range []hostfs.FileID{created, mounted} {
		if own, err := d.isCreatedFor("/dir", "s1", id); !own || err != nil {
			t.Errorf("%v is the sandbox's: %t, %v", id, own, err)
		}
	}
	if own, err := d.isCreatedFor("/dir", "s1", identity(t, top)); own || err != nil {
		t.Errorf("another directory is the sandbox's: %t, %v", own, err)
	}
	var st unix.Stat_t
	testkit.Must(t, unix.Stat(dir, &st))
	if st.Uid != 12 || st.Gid != 34 || st.Mode&0o7777 != 0o775 {
		t.Errorf("the root is of %d:%d, mode %o", st.Uid, st.Gid, st.Mode)
	}
	if labelled {
		have := make([]byte, 256)
		if n, err := unix.Getxattr(dir, "security.selinux", have); err != nil || string(have[:n]) != label {
			t.Errorf("label %q, %v", have[:max(n, 0)], err)
		}
	} else {
		t.Log("labels cannot be set here")
	}

	parent := open(t, top)
	if found, err := unmountTmpfs(parent, "dir", nil); err != nil || found != mounted || identity(t, dir) != mounted {
		t.Errorf("without a record: found %v, %v", found, err)
	}
	for range 2 {
		if found, err := unmountTmpfs(parent, "dir", claim.Mounted); err != nil || found != created {
			t.Errorf("found %v, %v; want %v", found, err, created)
		}
	}
}
