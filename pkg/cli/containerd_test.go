// SPDX-License-Identifier: Apache-2.0

package cli

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

	"github.com/jackfield/jackfield/pkg/hostfs"
)

const nriTable = "[plugins.\"io.containerd.nri.v1.nri\"]\n"

// writeTree writes files below a new root, and gives the root.
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

func containerdTree(t *testing.T, root string) (*containerdSetup, error) {
	t.Helper()
	host, err := hostfs.New(root)
	if err != nil {
		t.Fatal(err)
	}
	return containerdFiles(runtimeFiles{host: host}, containerdConfig)
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
	if d := cmp.Diff([]string{"/etc/containerd/conf.d/no?.toml, which /etc/containerd/conf.d/a.toml imports"}, s.missing); d != "" {
		t.Errorf("missing: -want +got\n%s", d)
	}
	if s.version != 3 || !s.on() {
		t.Errorf("version %d, on %v; want 3 and on", s.version, s.on())
	}
}

// What is read is hostile: each ends at once, with an error that names the file.
func TestContainerdFilesHostile(t *testing.T) {
	const imports = "version = 2\nimports = ['conf.d/*']\n"
	for name, tc := range map[string]struct {
		make func(t *testing.T, dir string) error
		want string
		is   func(error) bool
	}{
		"a FIFO":      {func(_ *testing.T, dir string) error { return unix.Mkfifo(dir+"/a", 0o600) }, "conf.d/a", errdefs.IsInvalidArgument},
		"a directory": {func(_ *testing.T, dir string) error { return os.Mkdir(dir+"/a", 0o700) }, "conf.d/a", errdefs.IsInvalidArgument},
		"a huge file": {func(_ *testing.T, dir string) error {
			return os.WriteFile(dir+"/a", bytes.Repeat([]byte("#\n"), maxRuntimeFile/2+1), 0o600)
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
				if err := os.WriteFile(fmt.Sprintf("%s/%d", dir, i), bytes.Repeat([]byte("#\n"), maxRuntimeFile/2), 0o600); err != nil {
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
	// A symlink leads nowhere but below the root.
	root := writeTree(t, map[string]string{"etc/containerd/config.toml": imports})
	outside := filepath.Join(writeTree(t, map[string]string{"x": nriTable + "disable = true\n"}), "x")
	if err := os.MkdirAll(root+"/etc/containerd/conf.d", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, root+"/etc/containerd/conf.d/a"); err != nil {
		t.Fatal(err)
	}
	if s, err := containerdTree(t, root); err != nil || len(s.files) != 1 || len(s.missing) != 1 || s.nri != nil {
		t.Errorf("a symlink out of the root: %+v, %v", s, err)
	}
}

// Each is what enable and the doctor say of a main file with imports = ['d/*.toml']
// and of drop-ins a and b.
func TestContainerdImports(t *testing.T) {
	const off, on = nriTable + "disable = true\n", nriTable + "disable = false\n"
	for name, tc := range map[string]struct {
		main, a, b             string
		status                 int
		enable, doctor, remedy string
	}{
		"a drop-in disables it": {"version = 3\n", "version = 3\n\n" + off, "", ExitError,
			"- /etc/containerd/d/a.toml:4: set disable = false, where it has true\n  edit it by hand, or give --config /etc/containerd/d/a.toml",
			"/etc/containerd/d/a.toml, which /etc/containerd/config.toml imports, turns NRI off", "at /etc/containerd/d/a.toml:4 and restart"},
		"as an inline table": {"version = 3\n", "[plugins]\n'io.containerd.nri.v1.nri' = {socket_path = '/x', disable = true}\n", "", ExitError,
			"/etc/containerd/d/a.toml:2: set disable = false", "/etc/containerd/d/a.toml, which", "at /etc/containerd/d/a.toml:2 and restart"},
		"the later one holds": {"version = 2\n" + off, off, on, ExitOK,
			"/etc/containerd/d/b.toml: NRI is on and lets plugins connect, nothing changed", "/etc/containerd/d/b.toml, which /etc/containerd/config.toml imports, has NRI on", ""},
		"a drop-in turns it on, of version 2": {"version = 2\n", on, "", ExitOK,
			"/etc/containerd/d/a.toml: NRI is on and lets plugins connect, nothing changed", "/etc/containerd/d/a.toml, which /etc/containerd/config.toml imports, has NRI on", ""},
		"a drop-in is of version 3": {"version = 2\n", "version = 3\n", "", ExitOK, "config.toml: NRI is on and lets plugins connect, nothing changed", "/etc/containerd/config.toml has NRI on", ""},
		"disabled_plugins add up": {"version = 3\n" + on, "disabled_plugins = ['io.containerd.nri.v1.nri']\n", "disabled_plugins = []\n" + on, ExitError,
			"/etc/containerd/d/a.toml:1: take io.containerd.nri.v1.nri out of disabled_plugins", "/etc/containerd/d/a.toml, which", "out of disabled_plugins at /etc/containerd/d/a.toml:1"},
		"containerd 1.7 takes the table whole": {"version = 2\n" + on, "# x\n" + nriTable + "socket_path = '/x'\n", "", ExitError,
			"/etc/containerd/d/a.toml:2: set disable = false in this", "containerd 1.7, which has it off by default, takes", "of /etc/containerd/d/a.toml, too"},
		"containerd 1.7 would take the table whole": {"version = 2\n", nriTable + "socket_path = '/x'\n", "", ExitError,
			"/etc/containerd/d/a.toml:1: set disable = false in this", "does not mention NRI, which containerd 1.7 has off by default", "with containerd 1.7 set disable = false"},
		"containerd 2 does not": {"version = 3\n" + on, nriTable + "socket_path = '/x'\n", "", ExitOK, "config.toml: NRI is on", "/etc/containerd/config.toml has NRI on", ""},
		"the main file has it off": {"version = 3\n" + off, "version = 3\n", "", ExitOK,
			"/etc/containerd/config.toml: changed:\n--- /etc/containerd/config.toml\n+++ /etc/containerd/config.toml\n@@ -4 +4 @@\n-disable = true\n+disable = false\n", "/etc/containerd/config.toml turns NRI off", "at /etc/containerd/config.toml:4 and restart"},
		"a drop-in lets nobody connect": {"version = 3\n", nriTable + "disable_connections = true\n", "", ExitError,
			"- /etc/containerd/d/a.toml:2: set disable_connections = false, where it has true\n  edit it by hand, or give --config /etc/containerd/d/a.toml", "/etc/containerd/d/a.toml, which /etc/containerd/config.toml imports, lets no plugin connect", "at /etc/containerd/d/a.toml:2 and restart"},
		"the main file lets nobody connect": {"version = 3\n" + nriTable + "disable = true\ndisable_connections = true # x\n", "", "", ExitOK,
			"/etc/containerd/config.toml: changed:\n--- /etc/containerd/config.toml\n+++ /etc/containerd/config.toml\n@@ -4,2 +4,2 @@\n-disable = true\n-disable_connections = true # x\n" +
				"+disable = false\n+disable_connections = false # x\n", "/etc/containerd/config.toml turns NRI off", "at /etc/containerd/config.toml:4 and restart"},
		"a drop-in that is no TOML": {"version = 3\n" + off, "[", "", ExitError,
			"imported by /etc/containerd/config.toml: /etc/containerd/d/a.toml: line 1", "imported by /etc/containerd/config.toml: /etc/containerd/d/a.toml: line 1", "mend it"},
	} {
		t.Run(name, func(t *testing.T) {
			first, rest, _ := strings.Cut(tc.main, "\n")
			files := map[string]string{"etc/containerd/config.toml": first + "\nimports = ['d/*.toml']\n" + rest, "etc/containerd/d/a.toml": tc.a, "etc/containerd/d/b.toml": tc.b}
			root := writeTree(t, files)
			var out bytes.Buffer
			Run(t.Context(), []string{"doctor", "--root", root}, Env{Stdout: &out, Stderr: &out, Getenv: func(string) string { return "" }})
			if !strings.Contains(out.String(), tc.doctor) || !strings.Contains(out.String(), tc.remedy) {
				t.Errorf("the doctor says\n%s\nwant %q and %q", out.String(), tc.doctor, tc.remedy)
			}
			status, text := nri(t, root)
			if status != tc.status || !strings.Contains(text, tc.enable) {
				t.Errorf("status %d and\n%s\nwant %d and %q", status, text, tc.status, tc.enable)
			}
			for name, want := range files {
				if got, err := os.ReadFile(filepath.Join(root, name)); err != nil || (string(got) != want) != (strings.Contains(tc.enable, ": changed") && strings.HasSuffix(name, "config.toml")) {
					t.Errorf("%s is now %q, %v", name, got, err)
				}
			}
		})
	}
}

func TestContainerdImportMissing(t *testing.T) {
	root := writeTree(t, map[string]string{"etc/containerd/config.toml": "version = 2\nimports = ['gone.toml']\n" + nriTable + "disable = true\n"})
	var out bytes.Buffer
	Run(t.Context(), []string{"doctor", "--root", root}, Env{Stdout: &out, Stderr: &out, Getenv: func(string) string { return "" }})
	if !strings.Contains(out.String(), "there is no /etc/containerd/gone.toml, which /etc/containerd/config.toml imports") {
		t.Errorf("the doctor says\n%s", out.String())
	}
	status, text := nri(t, root)
	if status != ExitOK || !strings.Contains(text, "there is no /etc/containerd/gone.toml") || !strings.Contains(text, ": changed:\n") {
		t.Errorf("status %d and %s", status, text)
	}
}
