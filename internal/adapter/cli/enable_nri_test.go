// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/internal/config/runtimeconfig"
)

func runEnableNRI(t *testing.T, root string, args ...string) (int, string) {
	t.Helper()
	var out, errs bytes.Buffer
	status := Run(t.Context(), append([]string{"enable-nri", "--root", root}, args...), Env{Stdin: &bytes.Buffer{}, Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" }})
	return status, out.String() + errs.String()
}

func TestEnableNRIWritesNoFileThatExists(t *testing.T) {
	const off = "version = 2\n[plugins.\"io.containerd.nri.v1.nri\"]\n  disable = true\n"
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	check := func(wantStatus int, want string, args ...string) {
		t.Helper()
		if status, out := runEnableNRI(t, root, args...); status != wantStatus || !strings.Contains(out, want) {
			t.Errorf("status %d and %q, want %d and %q", status, out, wantStatus, want)
		}
	}
	checkFile := func(name, want string) {
		t.Helper()
		if data, err := os.ReadFile(filepath.Join(root, name)); err != nil || string(data) != want {
			t.Errorf("%s is now %q, %v", name, data, err)
		}
	}
	check(ExitUsage, "name the runtime: --runtime containerd")
	write("/srv/config.toml", off)
	if err := os.MkdirAll(filepath.Join(root, "etc/containerd"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/srv/config.toml", filepath.Join(root, runtimeconfig.ContainerdFile)); err != nil {
		t.Fatal(err)
	}
	check(ExitNo, "/etc/containerd/config.toml:3: set disable = false in place of true\n\n"+
		"The runtime reads it at its next start: systemctl restart containerd")
	checkFile("/srv/config.toml", off)
	write("/srv/config.toml", strings.Replace(off, "true", "false", 1))
	check(ExitOK, "NRI is on and lets plugins connect, by /etc/containerd/config.toml: nothing to do")
	// An imported file takes precedence.
	const main = "version = 2\nimports = [\"conf.d/*.toml\"]\n"
	write("/srv/config.toml", main)
	write("/etc/containerd/conf.d/nri.toml", off)
	check(ExitNo, "/etc/containerd/conf.d/nri.toml:3: set disable = false in place of true")
	checkFile("/etc/containerd/conf.d/nri.toml", off)
	if err := os.Remove(filepath.Join(root, "/etc/containerd/conf.d/nri.toml")); err != nil {
		t.Fatal(err)
	}
	check(ExitOK, "/etc/containerd/conf.d/99-jackfield-nri.toml: would be written:\n# Written by jackfield enable-nri.\nversion = 2\n", "--dry-run")
	if _, err := os.Stat(filepath.Join(root, "/etc/containerd/conf.d/99-jackfield-nri.toml")); err == nil {
		t.Error("a dry run wrote the drop-in")
	}
	check(ExitOK, "/etc/containerd/conf.d/99-jackfield-nri.toml: written:\n")
	checkFile("/srv/config.toml", main)
	check(ExitOK, "NRI is on and lets plugins connect, by /etc/containerd/conf.d/99-jackfield-nri.toml: nothing to do")
	if names, _ := filepath.Glob(filepath.Join(root, "etc/containerd/conf.d/.*")); len(names) > 0 {
		t.Errorf("left behind: %q", names)
	}

	write(runtimeconfig.CRIOFile, "[crio.nri]\nenable_nri = false\n")
	check(ExitUsage, "both containerd and CRI-O are here")
	check(ExitError, "CRI-O does not read /etc/crio/x.conf", "--runtime", "cri-o", "--runtime-config", "/etc/crio/x.conf")
	const dropIn = "# Written by jackfield enable-nri.\n[crio.nri]\nenable_nri = true\nnri_disable_connections = false\n"
	check(ExitOK, runtimeconfig.CRIODropIn+": written:\n"+dropIn+"\nThe runtime reads it at its next start: systemctl restart crio", "--runtime", "cri-o")
	check(ExitOK, "by "+runtimeconfig.CRIODropIn, "--runtime", "cri-o")
	checkFile(runtimeconfig.CRIODropIn, dropIn)
	write("/etc/crio/crio.conf.d/99-z.conf", "[crio.nri]\nenable_nri = false\n")
	check(ExitNo, "/etc/crio/crio.conf.d/99-z.conf:2: set enable_nri = true in place of false", "--runtime", "cri-o")
	check(ExitUsage, "must be containerd or cri-o", "--runtime", "docker")
}

const nriTable = "[plugins.\"io.containerd.nri.v1.nri\"]\n"

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

// Each case has the messages of enable-nri and doctor about a main file with imports = ['d/*.toml'], and the
// imported files a and b. written is the name of the drop-in that enable-nri writes.
func TestContainerdImports(t *testing.T) {
	const (
		off, on = nriTable + "disable = true\n", nriTable + "disable = false\n"
		written = "/etc/containerd/d/99-jackfield-nri.toml: written:\n"
	)
	for name, tc := range map[string]struct {
		main, a, b             string
		status                 int
		enable, doctor, remedy string
	}{
		"a drop-in disables it": {"version = 3\n", "version = 3\n\n" + off, "", ExitNo,
			"/etc/containerd/d/a.toml:4: set disable = false in place of true\n",
			"/etc/containerd/d/a.toml, which /etc/containerd/config.toml imports, turns NRI off", "at /etc/containerd/d/a.toml:4 and restart"},
		"as an inline table": {"version = 3\n", "[plugins]\n'io.containerd.nri.v1.nri' = {socket_path = '/x', disable = true}\n", "", ExitNo,
			"/etc/containerd/d/a.toml:2: set disable = false", "/etc/containerd/d/a.toml, which", "at /etc/containerd/d/a.toml:2 and restart"},
		"the later one holds": {"version = 2\n" + off, off, on, ExitOK,
			", by /etc/containerd/d/b.toml: nothing to do", "/etc/containerd/d/b.toml, which /etc/containerd/config.toml imports, has NRI on", ""},
		"a drop-in turns it on, of version 2": {"version = 2\n", on, "", ExitOK,
			", by /etc/containerd/d/a.toml: nothing to do", "/etc/containerd/d/a.toml, which /etc/containerd/config.toml imports, has NRI on", ""},
		"a drop-in is of version 3": {"version = 2\n", "version = 3\n", "", ExitOK, "by default: nothing to do", "/etc/containerd/config.toml has NRI on", ""},
		"disabled_plugins add up": {"version = 3\n" + on, "disabled_plugins = ['io.containerd.nri.v1.nri']\n", "disabled_plugins = []\n" + on, ExitNo,
			"/etc/containerd/d/a.toml:1: remove io.containerd.nri.v1.nri from disabled_plugins", "/etc/containerd/d/a.toml, which", "out of disabled_plugins at /etc/containerd/d/a.toml:1"},
		"containerd 1.7 takes the table whole": {"version = 2\n" + on, "# x\n" + nriTable + "socket_path = '/x'\n", "", ExitNo,
			"/etc/containerd/d/a.toml:2: set disable = false in [plugins", "containerd 1.7, which has it off by default, takes", "of /etc/containerd/d/a.toml, too"},
		"containerd 1.7 would take the table whole": {"version = 2\n", nriTable + "socket_path = '/x'\n", "", ExitNo,
			"/etc/containerd/d/a.toml:1: set disable = false in [plugins", "does not mention NRI, which containerd 1.7 has off by default", "with containerd 1.7 set disable = false"},
		"containerd 1.7 would lose the other keys": {"version = 2\n" + off + "socket_path = '/x'\n", "version = 2\n", "", ExitNo,
			"/etc/containerd/config.toml:4: set disable = false in place of true", "/etc/containerd/config.toml turns NRI off", "at /etc/containerd/config.toml:4 and restart"},
		"containerd 2 does not": {"version = 3\n" + on, nriTable + "socket_path = '/x'\n", "", ExitOK, ", by /etc/containerd/config.toml: nothing", "/etc/containerd/config.toml has NRI on", ""},
		"no file mentions it, of version 2": {"version = 2\n", "", "", ExitOK,
			written + "# Written by jackfield enable-nri.\nversion = 2\n\n" + nriTable + "  disable = false\n  disable_connections = false\n", "does not mention NRI", "with containerd 1.7 set"},
		"the main file has it off": {"version = 3\n" + off, "version = 3\n", "", ExitOK,
			written + "# Written by jackfield enable-nri.\nversion = 3\n", "/etc/containerd/config.toml turns NRI off", "at /etc/containerd/config.toml:4 and restart"},
		"a drop-in lets nobody connect": {"version = 3\n", "", nriTable + "disable_connections = true\n", ExitNo,
			"/etc/containerd/d/b.toml:2: set disable_connections = false in place of true\n", "/etc/containerd/d/b.toml, which /etc/containerd/config.toml imports, lets no plugin connect", "at /etc/containerd/d/b.toml:2 and restart"},
		"the main file lets nobody connect": {"version = 3\n" + nriTable + "disable = true\ndisable_connections = true # x\n", "", "", ExitOK,
			written, "/etc/containerd/config.toml turns NRI off", "at /etc/containerd/config.toml:4 and restart"},
		"version 1": {"[debug]\n", "", "", ExitNo, "/etc/containerd/config.toml: convert it with `containerd config migrate`", "does not mention NRI", ""},
		"a drop-in that is no TOML": {"version = 3\n" + off, "[", "", ExitError,
			"imported by /etc/containerd/config.toml: /etc/containerd/d/a.toml: line 1", "imported by /etc/containerd/config.toml: /etc/containerd/d/a.toml: line 1", "correct it"},
	} {
		t.Run(name, func(t *testing.T) {
			first, rest, _ := strings.Cut(tc.main, "\n")
			if first == "[debug]" {
				first, rest = "", first+"\n"
			}
			files := map[string]string{"etc/containerd/config.toml": first + "\nimports = ['d/*.toml']\n" + rest, "etc/containerd/d/a.toml": tc.a, "etc/containerd/d/b.toml": tc.b}
			root := writeTree(t, files)
			var out bytes.Buffer
			Run(t.Context(), []string{"doctor", "--root", root}, Env{Stdout: &out, Stderr: &out, Getenv: func(string) string { return "" }})
			if !strings.Contains(out.String(), tc.doctor) || !strings.Contains(out.String(), tc.remedy) {
				t.Errorf("doctor prints\n%s\nwant %q and %q", out.String(), tc.doctor, tc.remedy)
			}
			status, text := runEnableNRI(t, root)
			if status != tc.status || !strings.Contains(text, tc.enable) {
				t.Errorf("status %d and\n%s\nwant %d and %q", status, text, tc.status, tc.enable)
			}
			for name, want := range files {
				if got, err := os.ReadFile(filepath.Join(root, name)); err != nil || string(got) != want {
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
		t.Errorf("doctor prints\n%s", out.String())
	}
	status, text := runEnableNRI(t, root)
	if status != ExitNo || !strings.Contains(text, "there is no /etc/containerd/gone.toml") || !strings.Contains(text, "config.toml:4: set disable = false") {
		t.Errorf("status %d and %s", status, text)
	}
}

// A file that has the name of the drop-in is not replaced: it may belong to somebody else.
func TestEnableNRIKeepsFileWithNameOfDropIn(t *testing.T) {
	const other = "# mine\n"
	files := map[string]string{
		"etc/containerd/config.toml":                 "version = 3\nimports = ['/etc/containerd/d/*.toml']\n" + nriTable + "disable = true\n",
		"etc/containerd/d/99-jackfield-nri.toml":     other,
		"etc/crio/crio.conf.d/99-jackfield-nri.conf": other,
	}
	root := writeTree(t, files)
	for runtime, want := range map[string]string{
		"containerd": "/etc/containerd/config.toml:4: set disable = false in place of true",
		"cri-o":      "/etc/crio/crio.conf.d/99-jackfield-nri.conf: add these lines:\n\n[crio.nri]\nenable_nri = true\n",
	} {
		if status, text := runEnableNRI(t, root, "--runtime", runtime); status != ExitNo || !strings.Contains(text, want) {
			t.Errorf("%s: status %d and %s", runtime, status, text)
		}
	}
	for name, want := range files {
		if got, err := os.ReadFile(filepath.Join(root, name)); err != nil || string(got) != want {
			t.Errorf("%s is now %q, %v", name, got, err)
		}
	}
}
