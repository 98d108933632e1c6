// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// Root in a container is uid 0 on the host, too. So a directory of Jackfield's own is reached through no symlink and
// through no directory that another user can write.
func TestOwnDirIsReachedThroughTrustedDirectoriesOnly(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(root string) error
		want  string // "" for trusted
	}{
		"as it should be":        {func(string) error { return nil }, ""},
		"sticky parent":          {func(root string) error { return os.Chmod(root+"/a", 0o777|os.ModeSticky) }, ""},
		"parent of all users":    {func(root string) error { return os.Chmod(root+"/a", 0o777) }, `"/a": found mode 0777`},
		"directory of all users": {func(root string) error { return os.Chmod(root+"/a/b/c", 0o777) }, `"/a/b/c": found mode 0777`},
		"directory is sticky":    {func(root string) error { return os.Chmod(root+"/a/b/c", 0o777|os.ModeSticky) }, `"/a/b/c": found mode 1777`},
		"parent is a symlink": {func(root string) error {
			return errors.Join(os.Rename(root+"/a/b", root+"/a/x"), os.Symlink("x", root+"/a/b"))
		}, `"/a/b": found a symlink`},
		"directory is a symlink": {func(root string) error {
			return errors.Join(os.Rename(root+"/a/b/c", root+"/a/b/x"), os.Symlink("x", root+"/a/b/c"))
		}, `"/a/b/c": found a symlink`},
	} {
		root := t.TempDir()
		host, err := hostfs.New(root)
		err = errors.Join(err, os.MkdirAll(filepath.Join(root, "a/b/c"), 0o755), c.spoil(root))
		if err != nil {
			t.Fatal(err)
		}
		for _, open := range []func() (*os.File, error){
			func() (*os.File, error) { return OpenOwnDir(host, "/a/b/c") },
			func() (*os.File, error) { return MakeOwnDir(host, "/a/b/c", 0o700) },
		} {
			f, err := open()
			switch {
			case c.want == "" && err == nil:
				f.Close()
			case c.want == "" || err == nil || !errdefs.IsPermissionDenied(err) || !strings.Contains(err.Error(), c.want):
				t.Errorf("%s: %v, want %s", name, err, c.want)
			}
		}
	}
}

func TestOwnDirOfAnotherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory to another user")
	}
	for _, dir := range []string{"a", "a/b"} {
		root := t.TempDir()
		host, err := hostfs.New(root)
		if err = errors.Join(err, os.MkdirAll(root+"/a/b", 0o755), os.Chown(filepath.Join(root, dir), 12345, -1)); err != nil {
			t.Fatal(err)
		}
		if f, err := OpenOwnDir(host, "/a/b"); f != nil || !errdefs.IsPermissionDenied(err) || !strings.Contains(err.Error(), "uid 12345") {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

// A directory that is opened again is checked again. Only the directories above it are trusted once.
func TestOwnDirIsCheckedEachTime(t *testing.T) {
	root := t.TempDir()
	host, err := hostfs.New(root)
	if err = errors.Join(err, os.MkdirAll(root+"/a/b", 0o755)); err != nil {
		t.Fatal(err)
	}
	dir := NewOwnDir(host, "/a/b")
	for range 2 {
		f, err := dir.Open()
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	for _, c := range []struct {
		spoil func() error
		want  string
	}{
		{func() error { return os.Chmod(root+"/a/b", 0o777) }, `"/a/b": found mode 0777`},
		{func() error {
			return errors.Join(os.Rename(root+"/a/b", root+"/a/x"), os.Chmod(root+"/a/x", 0o755), os.Symlink("x", root+"/a/b"))
		},
			`"/a/b": found a symlink`},
		{func() error { return errors.Join(os.Rename(root+"/a", root+"/y"), os.Symlink("y", root+"/a")) }, `"/a": found a symlink`},
	} {
		if err := c.spoil(); err != nil {
			t.Fatal(err)
		}
		if f, err := dir.Open(); f != nil || !errdefs.IsPermissionDenied(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
		dir.trusted.Store(true)
	}
}

// Hosts have /var/run as a symlink to /run.
func TestOwnDirBelowVarRun(t *testing.T) {
	root := t.TempDir()
	host, err := hostfs.New(root)
	if err = errors.Join(err, os.MkdirAll(root+"/run", 0o755), os.Mkdir(root+"/var", 0o755), os.Symlink("../run", root+"/var/run")); err != nil {
		t.Fatal(err)
	}
	if f, err := OpenOwnDir(host, "/var/run/x"); f != nil || !errdefs.IsNotFound(err) {
		t.Errorf("missing: %v, %v", f, err)
	}
	f, err := MakeOwnDir(host, "/var/run/x/y", 0o700)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if st, err := os.Stat(root + "/run/x/y"); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", st, err)
	}
}
