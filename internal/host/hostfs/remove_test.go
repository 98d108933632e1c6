// SPDX-License-Identifier: Apache-2.0

package hostfs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
)

// openTempDir creates and opens a directory.
func openTempDir(t *testing.T) (*os.File, string) {
	t.Helper()
	dir := t.TempDir()
	f, err := os.Open(dir)
	testkit.Must(t, err)
	t.Cleanup(func() { f.Close() })
	return f, dir
}

// makeNestedDirs creates nested directories, with a file in each.
func makeNestedDirs(t *testing.T, dirfd int, name string, levels int) {
	t.Helper()
	at, err := unix.Dup(dirfd)
	testkit.Must(t, err)
	for range levels {
		testkit.Must(t, unix.Mkdirat(at, name, 0o755))
		next, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		testkit.Must(t, err)
		unix.Close(at)
		at, name = next, "d"
		file, err := unix.Openat(at, "file", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
		testkit.Must(t, err)
		unix.Close(file)
	}
	unix.Close(at)
}

const deepTree = "JACKFIELD_TEST_DEEP_TREE"

// A process that may open only a few files removes a tree of thousands of levels.
func TestRemoveTreeOfAnyDepth(t *testing.T) {
	if dir := os.Getenv(deepTree); dir != "" {
		limit := unix.Rlimit{Cur: 24, Max: 24}
		testkit.Must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
		f, err := os.Open(dir)
		testkit.Must(t, err)
		defer f.Close() // keeps f open: the garbage collector would close it
		testkit.Must(t, RemoveTreeAt(int(f.Fd()), "tree"))
		return
	}
	f, dir := openTempDir(t)
	t.Cleanup(func() { _ = RemoveTreeAt(int(f.Fd()), "tree") }) // the removal by package testing fails on so many levels
	makeNestedDirs(t, int(f.Fd()), "tree", 5000)
	for i := range 40 { // and many directories beside each other
		testkit.Must(t, os.MkdirAll(filepath.Join(dir, "tree", fmt.Sprint("w", i), "x/y/z"), 0o755))
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestRemoveTreeOfAnyDepth$", "-test.count=1")
	cmd.Env = append(os.Environ(), deepTree+"="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%.2000s", err, out)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestRemoveTreeFollowsNoSymlink(t *testing.T) {
	f, dir := openTempDir(t)
	testkit.Must(t, os.MkdirAll(filepath.Join(dir, "outside/sub"), 0o755))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "outside/sub/file"), nil, 0o600))
	testkit.Must(t, os.MkdirAll(filepath.Join(dir, "tree/a/b"), 0o755))
	for _, link := range []string{"link", "tree/link", "tree/a/link", "tree/a/b/link"} {
		testkit.Must(t, os.Symlink(filepath.Join(dir, "outside"), filepath.Join(dir, link)))
	}
	for _, name := range []string{"tree", "link", "missing"} {
		if err := RemoveTreeAt(int(f.Fd()), name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v; want only the directory outside", left, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "outside/sub/file")); err != nil {
		t.Errorf("the target of a symlink was removed: %v", err)
	}
	if err := RemoveTreeAt(int(f.Fd()), "outside/sub"); err != nil { // a path without symlinks
		t.Error(err)
	}
}

// A file system that is mounted in the tree stays. Everything else is removed.
func TestRemoveTreeEntersNoMount(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root mounts")
	}
	f, dir := openTempDir(t)
	at := filepath.Join(dir, "tree/a/b/mounted")
	testkit.Must(t, os.MkdirAll(at, 0o755))
	testkit.Must(t, os.MkdirAll(filepath.Join(dir, "tree/c/d"), 0o755))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "tree/a/b/file"), nil, 0o600))
	testkit.Must(t, unix.Mount("test", at, "tmpfs", 0, ""))
	t.Cleanup(func() {
		mounts, _ := Mounts()
		for _, m := range mounts {
			if len(m.Point) > len(dir) && m.Point[:len(dir)] == dir {
				_ = unix.Unmount(m.Point, unix.MNT_DETACH)
			}
		}
	})
	inside, err := os.Create(filepath.Join(at, "precious"))
	testkit.Must(t, err)
	defer inside.Close()
	if err := RemoveTreeAt(int(f.Fd()), "tree"); !errors.Is(err, unix.EBUSY) {
		t.Errorf("RemoveTreeAt of a tree with a mount: %v, want EBUSY", err)
	}
	var st unix.Stat_t
	testkit.Must(t, unix.Fstat(int(inside.Fd()), &st))
	if st.Nlink != 1 {
		t.Error("a file in the mounted file system was removed")
	}
	if _, err := os.Lstat(filepath.Join(dir, "tree/c")); err == nil {
		t.Error("a directory beside the mount is left")
	}
	// The same holds for a mount at the top of the tree.
	top := filepath.Join(dir, "top")
	testkit.Must(t, os.Mkdir(top, 0o755))
	testkit.Must(t, unix.Mount("test", top, "tmpfs", 0, ""))
	testkit.Must(t, os.WriteFile(filepath.Join(top, "precious"), nil, 0o600))
	if err := RemoveTreeAt(int(f.Fd()), "top"); !errors.Is(err, unix.EBUSY) {
		t.Errorf("RemoveTreeAt of a mount: %v, want EBUSY", err)
	}
	if _, err := os.Lstat(filepath.Join(top, "precious")); err != nil {
		t.Error(err)
	}
}

// A symlink that replaces a directory between two checks is not followed.
func TestOpenForRemovalFollowsNoSymlink(t *testing.T) {
	dir := t.TempDir()
	testkit.Must(t, os.Mkdir(filepath.Join(dir, "neighbour"), 0o755))
	testkit.Must(t, os.Symlink("neighbour", filepath.Join(dir, "link")))
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	testkit.Must(t, err)
	defer unix.Close(fd)
	if f, err := openForRemoval(fd, "link"); !errors.Is(err, unix.ELOOP) {
		t.Errorf("got %v, %v; want ELOOP", f, err)
	}
	f, err := openForRemoval(fd, "neighbour")
	testkit.Must(t, err)
	testkit.Must(t, f.Close())
}
