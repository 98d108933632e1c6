// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

func TestLoadChecksOwnerAndMode(t *testing.T) {
	dir := t.TempDir()
	host, err := hostfs.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, content string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	write("good.yaml", "stateDir: /run/x\n", 0o644)
	write("open.yaml", "stateDir: /run/x\n", 0o646)
	write("group.yaml", "stateDir: /run/x\n", 0o664)
	foreign := os.Geteuid() == 0 // only root can give a file to another group
	if foreign {
		write("foreign.yaml", "stateDir: /run/x\n", 0o664)
		if err := os.Chown(filepath.Join(dir, "foreign.yaml"), -1, 12345); err != nil {
			t.Fatal(err)
		}
		// A daemon refuses a file of a user other than root.
		write("owned.yaml", "stateDir: /run/x\n", 0o644)
		for uid, want := range map[int]bool{0: true, 12345: false} {
			if err := os.Chown(filepath.Join(dir, "owned.yaml"), uid, -1); err != nil {
				t.Fatal(err)
			}
			if _, err := Load(host, "/owned.yaml", Options{}); err != nil {
				t.Errorf("a file of uid %d: %v", uid, err)
			}
			if _, err := Load(host, "/owned.yaml", Options{RequireOwner: true}); want != (err == nil) || err != nil && !errdefs.IsPermissionDenied(err) {
				t.Errorf("a daemon's file of uid %d: %v", uid, err)
			}
		}
	} else {
		t.Log("not root: cannot test a file that another group can write")
	}
	write("large.yaml", strings.Repeat("#", MaxSize+1), 0o600)
	if err := unix.Mkfifo(filepath.Join(dir, "fifo.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "dir.yaml"), 0o700); err != nil {
		t.Fatal(err)
	}
	// The files of a ConfigMap are symlinks.
	if err := os.Symlink("good.yaml", filepath.Join(dir, "link.yaml")); err != nil {
		t.Fatal(err)
	}

	for _, name := range []string{"/good.yaml", "/link.yaml", "/group.yaml"} {
		c, err := Load(host, name, Options{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if c.StateDir != "/run/x" || c.File() != name {
			t.Errorf("%s: got %q from %q", name, c.StateDir, c.File())
		}
	}
	refused := map[string]error{
		"/none.yaml":  errdefs.ErrNotFound,
		"/open.yaml":  errdefs.ErrPermissionDenied,
		"/large.yaml": errdefs.ErrInvalidArgument,
		"/fifo.yaml":  errdefs.ErrInvalidArgument,
		"/dir.yaml":   errdefs.ErrInvalidArgument,
	}
	if foreign {
		refused["/foreign.yaml"] = errdefs.ErrPermissionDenied
	}
	for name, want := range refused {
		c, err := Load(host, name, Options{})
		if c != nil || !errors.Is(err, want) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v, %v; want %v", name, c, err, want)
		}
	}
}

// Programs that share the daemon's configuration refuse a file of another user, as the daemon does.
func TestLoadOrCopyRequiresOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file to another user")
	}
	dir := t.TempDir()
	host, err := hostfs.New(dir)
	file := filepath.Join(dir, DefaultPath)
	err = errors.Join(err, os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte("stateDir: /run/x\n"), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := LoadOrCopy(host, DefaultPath); err != nil {
		t.Errorf("a file of root: %v", err)
	}
	if err := os.Chown(file, 12345, -1); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadOrCopy(host, DefaultPath); !errdefs.IsPermissionDenied(err) {
		t.Errorf("a file of another user: %v", err)
	}
}

// The copy grants as the file does, so another user's is refused.
func TestLoadCopyRequiresOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file to another user")
	}
	dir := t.TempDir()
	host, err := hostfs.New(dir)
	if err = errors.Join(err, os.MkdirAll(filepath.Join(dir, "run/jackfield"), 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := WriteCopy(host, DefaultCopyPath, DefaultPath, []byte("stateDir: /run/x\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadCopy(host, DefaultCopyPath, DefaultPath); err != nil {
		t.Errorf("a copy of root: %v", err)
	}
	if err := os.Chown(filepath.Join(dir, DefaultCopyPath), 12345, -1); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadCopy(host, DefaultCopyPath, DefaultPath); !errdefs.IsPermissionDenied(err) {
		t.Errorf("a copy of another user: %v", err)
	}
}
