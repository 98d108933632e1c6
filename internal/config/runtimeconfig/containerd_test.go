// SPDX-License-Identifier: Apache-2.0

package runtimeconfig

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

const nriHeader = "[plugins.\"io.containerd.nri.v1.nri\"]\n"

// writeTree writes files below a new root, and returns the root.
func writeTree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func containerdTree(t *testing.T, root string) (*Containerd, error) {
	t.Helper()
	host, err := hostfs.New(root)
	if err != nil {
		t.Fatal(err)
	}
	return ReadContainerd(Files{Host: host}, ContainerdFile)
}

// The order is that of containerd: breadth first, each path once, globs sorted.
func TestContainerdFilesOrder(t *testing.T) {
	s, err := containerdTree(t, writeTree(t, map[string]string{
		"etc/containerd/config.toml":          "imports = ['/etc/containerd/conf.d/*.toml', \"../other/./x.toml\", 'nothing/*.toml']\nversion = 2\n",
		"etc/containerd/conf.d/b.toml":        "version = 3\n",
		"etc/containerd/conf.d/a.toml":        "imports = ['deep/*/[a]*.toml', '/etc/containerd/config.toml', 'no?.toml']\n",
		"etc/containerd/conf.d/.h.toml":       "",
		"etc/containerd/conf.d/not.txt":       "\x00",
		"etc/containerd/conf.d/deep/2/a.toml": "imports = ['*.toml']\n",
		"etc/containerd/conf.d/deep/1/a.toml": "",
		"etc/containerd/conf.d/deep/1/z.toml": "",
		"etc/other/x.toml":                    "",
	}))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range s.files {
		names = append(names, strings.TrimPrefix(f.name, "/etc/"))
	}
	want := []string{"containerd/config.toml", "containerd/conf.d/.h.toml", "containerd/conf.d/a.toml", "containerd/conf.d/b.toml", "other/x.toml",
		"containerd/conf.d/deep/1/a.toml", "containerd/conf.d/deep/2/a.toml"}
	if d := cmp.Diff(want, names); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	if d := cmp.Diff([]string{"/etc/containerd/conf.d/no?.toml, which /etc/containerd/conf.d/a.toml imports"}, s.Missing); d != "" {
		t.Errorf("missing: -want +got\n%s", d)
	}
	if s.version != 3 || !s.NRIOn() {
		t.Errorf("version %d, on %v; want 3 and on", s.version, s.NRIOn())
	}
}

// Reading hostile files ends at once, with an error that names the file.
func TestContainerdFilesAreBounded(t *testing.T) {
	const imports = "version = 2\nimports = ['conf.d/*']\n"
	for name, tc := range map[string]struct {
		make func(t *testing.T, dir string) error
		want string
		is   func(error) bool
	}{
		"a FIFO":      {func(_ *testing.T, dir string) error { return unix.Mkfifo(dir+"/a", 0o600) }, "conf.d/a", errdefs.IsInvalidArgument},
		"a directory": {func(_ *testing.T, dir string) error { return os.Mkdir(dir+"/a", 0o700) }, "conf.d/a", errdefs.IsInvalidArgument},
		"a huge file": {func(_ *testing.T, dir string) error {
			return os.WriteFile(dir+"/a", bytes.Repeat([]byte("#\n"), MaxFile/2+1), 0o600)
		}, "conf.d/a", errdefs.IsInvalidArgument},
		"not TOML":   {func(_ *testing.T, dir string) error { return os.WriteFile(dir+"/a", []byte("\n[x\n"), 0o600) }, "conf.d/a: line 2", errdefs.IsInvalidArgument},
		"not a list": {func(_ *testing.T, dir string) error { return os.WriteFile(dir+"/a", []byte("imports = 'x'\n"), 0o600) }, "conf.d/a: imports", errdefs.IsInvalidArgument},
		"a bad pattern": {func(_ *testing.T, dir string) error {
			return os.WriteFile(dir+"/a", []byte("imports = ['[*']\n"), 0o600)
		}, "conf.d/[*", errdefs.IsInvalidArgument},
		"many files": {func(_ *testing.T, dir string) error {
			for i := range maxImports {
				if err := os.WriteFile(fmt.Sprintf("%s/%d", dir, i), nil, 0o600); err != nil {
					return err
				}
			}
			return nil
		}, "more than 256 files", errdefs.IsResourceExhausted},
		"many bytes": {func(_ *testing.T, dir string) error {
			for i := range 5 {
				if err := os.WriteFile(fmt.Sprintf("%s/%d", dir, i), bytes.Repeat([]byte("#\n"), MaxFile/2), 0o600); err != nil {
					return err
				}
			}
			return nil
		}, "bytes", errdefs.IsResourceExhausted},
		// Each import has a longer name for the same file.
		"a loop": {func(_ *testing.T, dir string) error {
			if err := os.WriteFile(dir+"/a", []byte("imports = ['up/a', '*/a']\n"), 0o600); err != nil {
				return err
			}
			return os.Symlink(".", dir+"/up")
		}, "conf.d/up", func(err error) bool { return err != nil }},
	} {
		t.Run(name, func(t *testing.T) {
			root := writeTree(t, map[string]string{"etc/containerd/config.toml": imports})
			dir := filepath.Join(root, "etc/containerd/conf.d")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := tc.make(t, dir); err != nil {
				t.Fatal(err)
			}
			_, err := containerdTree(t, root)
			if !tc.is(err) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %s", err, tc.want)
			}
		})
	}
	// A symlink is followed below the root only.
	root := writeTree(t, map[string]string{"etc/containerd/config.toml": imports})
	outside := filepath.Join(writeTree(t, map[string]string{"x": nriHeader + "disable = true\n"}), "x")
	if err := os.MkdirAll(root+"/etc/containerd/conf.d", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, root+"/etc/containerd/conf.d/a"); err != nil {
		t.Fatal(err)
	}
	if s, err := containerdTree(t, root); err != nil || len(s.files) != 1 || len(s.Missing) != 1 || s.NRIDisable().IsSet() {
		t.Errorf("a symlink out of the root: %+v, %v", s, err)
	}
}
