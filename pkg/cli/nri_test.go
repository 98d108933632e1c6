// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestContainerdWithNRI(t *testing.T) {
	const header = "[plugins.\"io.containerd.nri.v1.nri\"]\n"
	for name, tc := range map[string]struct{ in, want string }{
		"no file":                   {"", "version = 2\n\n" + header + "  disable = false\n"},
		"no connections":            {"version = 3\n" + header + "disable = false\ndisable_connections = true\n", "version = 3\n" + header + "disable = false\ndisable_connections = false\n"},
		"off, and no connections":   {"version = 2\n" + header + "disable_connections = true # no\ndisable = true\n", "version = 2\n" + header + "disable_connections = false # no\ndisable = false\n"},
		"no connections, dotted":    {"version = 3\nplugins.\"io.containerd.nri.v1.nri\".disable_connections = true\n", "version = 3\nplugins.\"io.containerd.nri.v1.nri\".disable_connections = false\n"},
		"comments alone":            {"# mine", "# mine\nversion = 2\n\n" + header + "  disable = false\n"},
		"off":                       {"version = 2\n" + header + "  disable = true # off\n  socket_path = '/x'\n[debug]\n", "version = 2\n" + header + "  disable = false # off\n  socket_path = '/x'\n[debug]\n"},
		"off, other quotes":         {"version = 3\n[ plugins . 'io.containerd.nri.v1.nri' ]\ndisable=true", "version = 3\n[ plugins . 'io.containerd.nri.v1.nri' ]\ndisable=false"},
		"off, dotted":               {"version = 2\nplugins.\"io.containerd.nri.v1.nri\".disable = true\n", "version = 2\nplugins.\"io.containerd.nri.v1.nri\".disable = false\n"},
		"a table without it":        {"version = 2\n" + header + "  socket_path = '/x'\n", "version = 2\n" + header + "  disable = false\n  socket_path = '/x'\n"},
		"an empty table at the end": {"version = 2\n" + strings.TrimSuffix(header, "\n"), "version = 2\n" + header + "  disable = false\n"},
		"not mentioned":             {"version = 2\n[debug]\n  level = \"info\"", "version = 2\n[debug]\n  level = \"info\"\n\n" + header + "  disable = false\n"},
		"on":                        {"version = 2\n" + header + "disable = false\n", ""},
		"on by default":             {"version = 3\n[debug]\n", ""},
		"on by default, version 4":  {"version = 4\n[debug]\n", ""},
		"off, version 4":            {"version = 4\n[plugins.'io.containerd.nri.v1.nri']\n  disable = true\n", "version = 4\n[plugins.'io.containerd.nri.v1.nri']\n  disable = false\n"},
		"disabled":                  {"version = 3\ndisabled_plugins = [\"a\", \"io.containerd.nri.v1.nri\", \"b\"] # x\n", "version = 3\ndisabled_plugins = [\"a\", \"b\"] # x\n"},
		"disabled twice over": {"version = 2\ndisabled_plugins = [\n  'io.containerd.nri.v1.nri', # no\n  'b',\n]\n" + header + "disable = true\n",
			"version = 2\ndisabled_plugins = [\n  # no\n  'b',\n]\n" + header + "disable = false\n"},
		"disabled by two names": {"version = 3\ndisabled_plugins = ['io.containerd.nri.v1.nri', \"b\", \"io.containerd.nri.v1.nri\"] # x\n", "version = 3\ndisabled_plugins = [\"b\", ] # x\n"},
		"a table below it alone": {"version = 2\n[plugins.'io.containerd.nri.v1.nri'.default_validator]\nenable = true\n",
			"version = 2\n[plugins.'io.containerd.nri.v1.nri'.default_validator]\nenable = true\n\n" + header + "  disable = false\n"},
		"a table below it in front": {"version = 2\n[plugins.'io.containerd.nri.v1.nri'.default_validator]\nenable = true\n" + header + "socket_path = 'x'\n",
			"version = 2\n[plugins.'io.containerd.nri.v1.nri'.default_validator]\nenable = true\n" + header + "  disable = false\nsocket_path = 'x'\n"},
		// What looks like a table inside of a string or list is none.
		"decoys": {"version = 2\nx = \"\"\"\n" + header + "disable = true\n\"\"\"\ny = ['''\n" + header + "''', \"#\", { a = [1, 2], 'b' = \"]\" }, # [z]\n]\n[[a]]\n[[a]]\n",
			"version = 2\nx = \"\"\"\n" + header + "disable = true\n\"\"\"\ny = ['''\n" + header + "''', \"#\", { a = [1, 2], 'b' = \"]\" }, # [z]\n]\n[[a]]\n[[a]]\n\n" + header + "  disable = false\n"},
		"CRLF": {"version = 2\r\n" + strings.ReplaceAll(header, "\n", "\r\n") + "disable = true\r\n", "version = 2\r\n" + strings.ReplaceAll(header, "\n", "\r\n") + "disable = false\r\n"},
	} {
		got, changes, err := containerdWithNRI(tc.in)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if tc.want == "" {
			tc.want = tc.in
			if len(changes) > 0 {
				t.Errorf("%s: changed: %q", name, changes)
			}
		} else if len(changes) == 0 {
			t.Errorf("%s: no change is told", name)
		}
		if d := cmp.Diff(tc.want, got); d != "" {
			t.Errorf("%s: -want +got\n%s", name, d)
		}
	}
}

func TestContainerdWithNRIRefuses(t *testing.T) {
	for in, want := range map[string]string{
		"[debug]\n":                   "version 1, want 2, 3 or 4",
		"version = 1\n":               "containerd config migrate",
		"version = 2\nplugins = {}\n": "inline table",
		"version = 2\n[plugins]\n'io.containerd.nri.v1.nri' = {disable = true}\n":          "inline table",
		"version = 2\n[plugins]\n'io.containerd.nri.v1.nri'.socket_path = 'x'\n":           "dotted keys",
		"version = 2\n[plugins.'io.containerd.nri.v1.nri']\ndisable = 1\n":                 "found 1, want true or false",
		"version = 2\nplugins.'io.containerd.nri.v1.nri'.disable_connections = true\n":     "dotted keys",
		"version = 3\n[plugins.'io.containerd.nri.v1.nri']\ndisable_connections = 'yes'\n": "disable_connections: found 'yes', want true or false",
		"version = 2\n[debug\n":    "line 2",
		"version = 2\nx = \"a\n":   "line 2",
		"version = 2\n\nx = [1,\n": "not closed",
		"version = 2 3\n":          "want 2, 3 or 4",
		"version\n":                "want = after the key",
	} {
		if out, _, err := containerdWithNRI(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %q, %v; want %s", in, out, err, want)
		}
	}
}

// Turning it on is once and for all, and adds or removes nothing else.
func FuzzContainerdWithNRI(f *testing.F) {
	f.Add("version = 2\n[plugins.\"io.containerd.nri.v1.nri\"]\ndisable = true # x\n")
	f.Add("version = 2\ndisabled_plugins = [\"io.containerd.nri.v1.nri\", 'io.containerd.nri.v1.nri']\n[a.b]\nc = {d = [1, \"x\"]}\n")
	f.Add("version = 3\nx = '''a''''\ny = \"\"\"\\\"\"\"\"\"\n[[z]]\n")
	f.Fuzz(func(t *testing.T, in string) {
		once, changes, err := containerdWithNRI(in)
		if err != nil {
			return
		}
		if len(changes) == 0 && once != in {
			t.Fatalf("%q became %q, and no change is told", in, once)
		}
		for range 64 { // a plugin may be disabled by several names of the list
			var more []string
			if once, more, err = containerdWithNRI(once); err != nil {
				t.Fatalf("%q became %q, which is refused: %v", in, once, err)
			}
			if len(more) == 0 {
				return
			}
		}
		if strings.Count(in, nriPlugin) < 60 {
			t.Fatalf("%q became %q, which is changed again and again", in, once)
		}
	})
}

func nri(t *testing.T, root string, args ...string) (int, string) {
	t.Helper()
	var out, errs bytes.Buffer
	status := Run(t.Context(), append([]string{"enable-nri", "--root", root}, args...), Env{Stdin: &bytes.Buffer{}, Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" }})
	return status, out.String() + errs.String()
}

func TestNRIEnable(t *testing.T) {
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
	status, out := nri(t, root)
	check(status, out, ExitUsage, "name the runtime: --runtime containerd")
	const off = "version = 2\n[plugins.\"io.containerd.nri.v1.nri\"]\n  disable = true\n"
	real := write("/srv/config.toml", off, 0o640)
	if err := os.MkdirAll(filepath.Join(root, "etc/containerd"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/srv/config.toml", filepath.Join(root, containerdConfig)); err != nil {
		t.Fatal(err)
	}
	status, out = nri(t, root, "--dry-run")
	check(status, out, ExitOK, "/etc/containerd/config.toml: would be changed")
	if data, _ := os.ReadFile(real); string(data) != off {
		t.Errorf("a dry run wrote %q", data)
	}
	status, out = nri(t, root)
	check(status, out, ExitOK, "containerd reads it at its next start: systemctl restart containerd")
	data, err := os.ReadFile(real)
	info, _ := os.Stat(real)
	if err != nil || string(data) != strings.Replace(off, "true", "false", 1) || info.Mode().Perm() != 0o640 {
		t.Errorf("the file is %q, %v, %v", data, info.Mode(), err)
	}
	status, out = nri(t, root)
	check(status, out, ExitOK, "NRI is on and lets plugins connect, nothing changed")
	if names, _ := filepath.Glob(filepath.Join(root, "srv/.*")); len(names) > 0 {
		t.Errorf("left behind: %q", names)
	}
	// An imported file would win.
	write("/srv/config.toml", "version = 2\nimports = [\"conf.d/*.toml\"]\n", 0o644)
	write("/etc/containerd/conf.d/nri.toml", off, 0o644)
	status, out = nri(t, root)
	check(status, out, ExitError, "give --config /etc/containerd/conf.d/nri.toml")
	status, out = nri(t, root, "--config", "/etc/containerd/conf.d/nri.toml")
	check(status, out, ExitOK, "changed")

	write(crioConfig, "[crio.nri]\nenable_nri = false\n", 0o644)
	status, out = nri(t, root)
	check(status, out, ExitUsage, "both containerd and CRI-O are here")
	status, out = nri(t, root, "--runtime", "cri-o")
	check(status, out, ExitOK, crioDropIn+": changed:\n--- /dev/null\n+++ "+crioDropIn+"\n@@ -0,0 +1,3 @@\n+# Written by jackfield enable-nri.\n+[crio.nri]\n+enable_nri = true\nCRI-O reads it")
	status, out = nri(t, root, "--runtime", "cri-o")
	check(status, out, ExitOK, crioDropIn+": NRI is on")
	if data, err := os.ReadFile(filepath.Join(root, crioDropIn)); err != nil || !strings.HasSuffix(string(data), "[crio.nri]\nenable_nri = true\n") {
		t.Errorf("the drop-in is %q, %v", data, err)
	}
	write("/etc/crio/crio.conf.d/99-z.conf", "[crio.nri]\nenable_nri = false\n", 0o644)
	status, out = nri(t, root, "--runtime", "cri-o")
	check(status, out, ExitError, "/etc/crio/crio.conf.d/99-z.conf:2 has enable_nri = false, and CRI-O reads that file later")
	status, out = nri(t, root, "--restart")
	check(status, out, ExitUsage, "--restart is for this host")
}
