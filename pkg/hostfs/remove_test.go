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
)

// openTop opens a new directory, in which a test makes what is to be removed.
func openTop(t *testing.T) (*os.File, string) {
	t.Helper()
	dir := t.TempDir()
	f, err := os.Open(dir)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f, dir
}

// makeChain makes a chain of nested directories, with a file in each.
func makeChain(t *testing.T, dirfd int, name string, levels int) {
	t.Helper()
	at, err := unix.Dup(dirfd)
	must(t, err)
	for range levels {
		must(t, unix.Mkdirat(at, name, 0o755))
		next, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		must(t, err)
		unix.Close(at)
		at, name = next, "d"
		file, err := unix.Openat(at, "file", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
		must(t, err)
		unix.Close(file)
	}
	unix.Close(at)
}

const deepTree = "JACKFIELD_TEST_DEEP_TREE"

// A tree of thousands of levels is removed by a process that may open a few files.
func TestRemoveTreeOfAnyDepth(t *testing.T) {
	if dir := os.Getenv(deepTree); dir != "" {
		limit := unix.Rlimit{Cur: 24, Max: 24}
		must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
		f, err := os.Open(dir)
		must(t, err)
		defer f.Close() // not before: the collector closes what nothing refers to
		must(t, RemoveTreeAt(int(f.Fd()), "tree"))
		return
	}
	f, dir := openTop(t)
	t.Cleanup(func() { _ = RemoveTreeAt(int(f.Fd()), "tree") }) // testing's own removal cannot
	makeChain(t, int(f.Fd()), "tree", 5000)
	for i := range 40 { // wide as well
		must(t, os.MkdirAll(filepath.Join(dir, "tree", fmt.Sprint("w", i), "x/y/z"), 0o755))
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
	f, dir := openTop(t)
	must(t, os.MkdirAll(filepath.Join(dir, "outside/sub"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "outside/sub/file"), nil, 0o600))
	must(t, os.MkdirAll(filepath.Join(dir, "tree/a/b"), 0o755))
	for _, link := range []string{"link", "tree/link", "tree/a/link", "tree/a/b/link"} {
		must(t, os.Symlink(filepath.Join(dir, "outside"), filepath.Join(dir, link)))
	}
	for _, name := range []string{"tree", "link", "missing"} {
		if err := RemoveTreeAt(int(f.Fd()), name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v; want what is outside alone", left, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "outside/sub/file")); err != nil {
		t.Errorf("what lies behind symlinks was removed: %v", err)
	}
	if err := RemoveTreeAt(int(f.Fd()), "outside/sub"); err != nil { // a path, as it is
		t.Error(err)
	}
}

// What is mounted in a tree stays, and everything else is removed.
func TestRemoveTreeEntersNoMount(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root mounts")
	}
	f, dir := openTop(t)
	at := filepath.Join(dir, "tree/a/b/mounted")
	must(t, os.MkdirAll(at, 0o755))
	must(t, os.MkdirAll(filepath.Join(dir, "tree/c/d"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "tree/a/b/file"), nil, 0o600))
	must(t, unix.Mount("test", at, "tmpfs", 0, ""))
	t.Cleanup(func() {
		mounts, _ := Mounts()
		for _, m := range mounts {
			if len(m.Point) > len(dir) && m.Point[:len(dir)] == dir {
				_ = unix.Unmount(m.Point, unix.MNT_DETACH)
			}
		}
	})
	inside, err := os.Create(filepath.Join(at, "precious"))
	must(t, err)
	defer inside.Close()
	if err := RemoveTreeAt(int(f.Fd()), "tree"); !errors.Is(err, unix.EBUSY) {
		t.Errorf("a tree with a mount in it gave %v", err)
	}
	var st unix.Stat_t
	if must(t, unix.Fstat(int(inside.Fd()), &st)); st.Nlink != 1 {
		t.Error("a file of what is mounted was removed")
	}
	if _, err := os.Lstat(filepath.Join(dir, "tree/c")); err == nil {
		t.Error("a neighbour of the mount is left")
	}
	// A mount at the very top is not entered either.
	top := filepath.Join(dir, "top")
	must(t, os.Mkdir(top, 0o755))
	must(t, unix.Mount("test", top, "tmpfs", 0, ""))
	must(t, os.WriteFile(filepath.Join(top, "precious"), nil, 0o600))
	if err := RemoveTreeAt(int(f.Fd()), "top"); !errors.Is(err, unix.EBUSY) {
		t.Errorf("a mount gave %v", err)
	}
	if _, err := os.Lstat(filepath.Join(top, "precious")); err != nil {
		t.Error(err)
	}
}
