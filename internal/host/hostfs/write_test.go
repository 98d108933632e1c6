// SPDX-License-Identifier: Apache-2.0

package hostfs

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
)

// ReplaceAt writes the whole file, with its mode under any umask. It replaces a symlink instead of following it, and
// leaves no temporary file, also after a failure.
func TestReplaceAtReplacesWholeFile(t *testing.T) {
	host, err := New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Umask(unix.Umask(0o077))
	dir, err := host.MakeDir("/a/b/c", 0o710)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	for name, want := range map[string]os.FileMode{"/a": 0o755, "/a/b": 0o755, "/a/b/c": 0o710} {
		if st, err := os.Stat(host.Path(name)); err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: %v, want mode %o", name, st, want)
		}
	}
	again, err := host.MakeDir("/a/b/c", 0o777)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
	if st, err := os.Stat(host.Path("/a/b/c")); err != nil || st.Mode().Perm() != 0o710 {
		t.Errorf("MakeDir changed the mode of an existing directory: %v, %v", st, err)
	}
	if fd, err := MkdirAt(int(dir.Fd()), "x", 0o700); err != nil {
		t.Error(err)
	} else {
		unix.Close(fd)
	}
	if _, err := MkdirAt(int(dir.Fd()), "x", 0o700); !errors.Is(err, unix.EEXIST) {
		t.Errorf("MkdirAt of an existing directory: %v", err)
	}

	at := host.Path("/a/b/c")
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("theirs"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(at, "f")); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"one", ""} {
		if err := ReplaceAt(int(dir.Fd()), "f", []byte(text), Own(0o644)); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(at, "f"))
		st, _ := os.Lstat(filepath.Join(at, "f"))
		if err != nil || string(got) != text || st.Mode() != 0o644 {
			t.Errorf("got %q with mode %v: %v", got, st.Mode(), err)
		}
	}
	if got, _ := os.ReadFile(outside); string(got) != "theirs" {
		t.Errorf("the target of the symlink has content %q", got)
	}
	if err := ReplaceAt(int(dir.Fd()), "x", []byte("y"), Own(0o644)); err == nil {
		t.Error("a directory was replaced")
	}
	if err := ReplaceAt(int(dir.Fd()), "y", []byte("y"), Like{Mode: 0o600, UID: os.Geteuid(), GID: os.Getegid()}); err != nil {
		t.Error(err)
	}
	left, err := os.ReadDir(at)
	if err != nil || len(left) != 3 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if IsTemporary("f") || !IsTemporary(".jackfield-X.tmp") {
		t.Error("IsTemporary is wrong")
	}
}

// If a file or symlink with the temporary name exists, ReplaceAt fails. It neither writes to the file nor renames it.
func TestReplaceAtRefusesExistingTemporaryFile(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Open(dir)
	testkit.Must(t, err)
	defer f.Close()
	randomNumber = func() uint64 { return 1 }
	t.Cleanup(func() { randomNumber = rand.Uint64 })
	tmp, theirs := filepath.Join(dir, ".jackfield-1.tmp"), filepath.Join(dir, "theirs")
	testkit.Must(t, os.WriteFile(theirs, []byte("theirs"), 0o666))
	for _, link := range []func(old, new string) error{os.Link, os.Symlink} {
		testkit.Must(t, link(theirs, tmp))
		if err := ReplaceAt(int(f.Fd()), "name", []byte("ours"), Own(0o600)); !errors.Is(err, unix.EEXIST) {
			t.Errorf("got %v, want EEXIST", err)
		}
		if got, err := os.ReadFile(theirs); err != nil || string(got) != "theirs" {
			t.Errorf("the existing file has content %q: %v", got, err)
		}
		if st, err := os.Lstat(filepath.Join(dir, "name")); err == nil {
			t.Errorf("the existing file was renamed: %v", st.Mode())
		}
		testkit.Must(t, os.Remove(tmp))
	}
}
