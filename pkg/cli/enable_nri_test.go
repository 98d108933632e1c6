// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/internal/runtimeconfig"
)

func runEnableNRI(t *testing.T, root string, args ...string) (int, string) {
	t.Helper()
	var out, errs bytes.Buffer
	status := Run(t.Context(), append([]string{"enable-nri", "--root", root}, args...), Env{Stdin: &bytes.Buffer{}, Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" }})
	return status, out.String() + errs.String()
}

func TestEnableNRIEditsConfigurationThatCounts(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		t.Helper()
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return name
	}
	check := func(status int, out string, wantStatus int, want string) {
		t.Helper()
		if status != wantStatus || !strings.Contains(out, want) {
			t.Errorf("status %d and %q, want %d and %q", status, out, wantStatus, want)
		}
	}
	status, out := runEnableNRI(t, root)
	check(status, out, ExitUsage, "name the runtime: --runtime containerd")
	const off = "version = 2\n[plugins.\"io.containerd.nri.v1.nri\"]\n  disable = true\n"
	real := write("/srv/config.toml", off, 0o640)
	if err := os.MkdirAll(filepath.Join(root, "etc/containerd"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/srv/config.toml", filepath.Join(root, runtimeconfig.ContainerdFile)); err != nil {
		t.Fatal(err)
	}
	status, out = runEnableNRI(t, root, "--dry-run")
	check(status, out, ExitOK, "/etc/containerd/config.toml: would be changed")
	if data, _ := os.ReadFile(real); string(data) != off {
		t.Errorf("a dry run wrote %q", data)
	}
	status, out = runEnableNRI(t, root)
	check(status, out, ExitOK, "containerd reads it at its next start: systemctl restart containerd")
	data, err := os.ReadFile(real)
	info, _ := os.Stat(real)
	if err != nil || string(data) != strings.Replace(off, "true", "false", 1) || info.Mode().Perm() != 0o640 {
		t.Errorf("the file is %q, %v, %v", data, info.Mode(), err)
	}
	status, out = runEnableNRI(t, root)
	check(status, out, ExitOK, "NRI is on and lets plugins connect, nothing changed")
	if names, _ := filepath.Glob(filepath.Join(root, "srv/.*")); len(names) > 0 {
		t.Errorf("left behind: %q", names)
	}
	// An imported file takes precedence.
	write("/srv/config.toml", "version = 2\nimports = [\"conf.d/*.toml\"]\n", 0o644)
	write("/etc/containerd/conf.d/nri.toml", off, 0o644)
	status, out = runEnableNRI(t, root)
	check(status, out, ExitError, "give --config /etc/containerd/conf.d/nri.toml")
	status, out = runEnableNRI(t, root, "--config", "/etc/containerd/conf.d/nri.toml")
	check(status, out, ExitOK, "changed")

	write(runtimeconfig.CRIOFile, "[crio.nri]\nenable_nri = false\n", 0o644)
	status, out = runEnableNRI(t, root)
	check(status, out, ExitUsage, "both containerd and CRI-O are here")
	status, out = runEnableNRI(t, root, "--runtime", "cri-o")
	check(status, out, ExitOK, runtimeconfig.CRIODropIn+": changed:\n--- /dev/null\n+++ "+runtimeconfig.CRIODropIn+"\n@@ -0,0 +1,3 @@\n+# Written by jackfield enable-nri.\n+[crio.nri]\n+enable_nri = true\nCRI-O reads it")
	status, out = runEnableNRI(t, root, "--runtime", "cri-o")
	check(status, out, ExitOK, runtimeconfig.CRIODropIn+": NRI is on")
	if data, err := os.ReadFile(filepath.Join(root, runtimeconfig.CRIODropIn)); err != nil || !strings.HasSuffix(string(data), "[crio.nri]\nenable_nri = true\n") {
		t.Errorf("the drop-in is %q, %v", data, err)
	}
	write("/etc/crio/crio.conf.d/99-z.conf", "[crio.nri]\nenable_nri = false\n", 0o644)
	status, out = runEnableNRI(t, root, "--runtime", "cri-o")
	check(status, out, ExitError, "/etc/crio/crio.conf.d/99-z.conf:2 has enable_nri = false, and CRI-O reads that file later")
	status, out = runEnableNRI(t, root, "--restart")
	check(status, out, ExitUsage, "--restart is for this host")
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
// imported files a and b.
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
			"imported by /etc/containerd/config.toml: /etc/containerd/d/a.toml: line 1", "imported by /etc/containerd/config.toml: /etc/containerd/d/a.toml: line 1", "correct it"},
	} {
		t.Run(name, func(t *testing.T) {
			first, rest, _ := strings.Cut(tc.main, "\n")
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
		t.Errorf("doctor prints\n%s", out.String())
	}
	status, text := runEnableNRI(t, root)
	if status != ExitOK || !strings.Contains(text, "there is no /etc/containerd/gone.toml") || !strings.Contains(text, ": changed:\n") {
		t.Errorf("status %d and %s", status, text)
	}
}
