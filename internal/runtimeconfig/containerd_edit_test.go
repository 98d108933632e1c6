// SPDX-License-Identifier: Apache-2.0

package runtimeconfig

import (
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
		// A table header inside of a string or list is not a table.
		"decoys": {"version = 2\nx = \"\"\"\n" + header + "disable = true\n\"\"\"\ny = ['''\n" + header + "''', \"#\", { a = [1, 2], 'b' = \"]\" }, # [z]\n]\n[[a]]\n[[a]]\n",
			"version = 2\nx = \"\"\"\n" + header + "disable = true\n\"\"\"\ny = ['''\n" + header + "''', \"#\", { a = [1, 2], 'b' = \"]\" }, # [z]\n]\n[[a]]\n[[a]]\n\n" + header + "  disable = false\n"},
		"CRLF": {"version = 2\r\n" + strings.ReplaceAll(header, "\n", "\r\n") + "disable = true\r\n", "version = 2\r\n" + strings.ReplaceAll(header, "\n", "\r\n") + "disable = false\r\n"},
	} {
		got, err := containerdWithNRI(tc.in)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if tc.want == "" {
			tc.want = tc.in
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
		"version = 2\n\nx = [1,\n": "line 3: not valid TOML: array is incomplete",
		"version = 2 3\n":          "line 1: not valid TOML",
		"version\n":                "expected '=' after key",
	} {
		if out, err := containerdWithNRI(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %q, %v; want %s", in, out, err, want)
		}
	}
}

// A second run changes nothing.
func FuzzContainerdWithNRI(f *testing.F) {
	f.Add("version = 2\n[plugins.\"io.containerd.nri.v1.nri\"]\ndisable = true # x\n")
	f.Add("version = 2\ndisabled_plugins = [\"io.containerd.nri.v1.nri\", 'io.containerd.nri.v1.nri']\n[a.b]\nc = {d = [1, \"x\"]}\n")
	f.Add("version = 3\nx = '''a''''\ny = \"\"\"\\\"\"\"\"\"\n[[z]]\n")
	f.Fuzz(func(t *testing.T, in string) {
		once, err := containerdWithNRI(in)
		if err != nil {
			return
		}
		twice, err := containerdWithNRI(once)
		if err != nil {
			t.Fatalf("%q became %q, which is refused: %v", in, once, err)
		}
		if twice != once {
			t.Fatalf("%q became %q, and then %q", in, once, twice)
		}
	})
}
