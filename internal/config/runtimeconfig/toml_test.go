// SPDX-License-Identifier: Apache-2.0

package runtimeconfig

import (
	"slices"
	"strings"
	"testing"
)

// readSettings returns all keys of a document.
func readSettings(text string) (Settings, error) {
	document, err := parseTOML("f", text)
	return newSettings(document), err
}

func TestReadSettingsUnderstandsTOML(t *testing.T) {
	s, err := readSettings(`version = 3 # of the format
disabled_plugins = [
  "a", # one
  'b', "c,d", # "e"
]
imports = ["/etc/containerd/conf.d/*.toml"]
[plugins."io.containerd.nri.v1.nri"]
  disable = false
  socket_path = "/run/x#y.sock"
[plugins.'io.containerd.cri.v1.runtime']
enable_cdi=true
[dotted]
a."b.c".d = 'e'
inline = {f = "g", h = {i = 1}}
`)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		path  []string
		value string
		line  int
	}{
		{[]string{"dotted", "a", "b.c", "d"}, "e", 13},
		{[]string{"dotted", "inline", "f"}, "g", 14},
		{[]string{"dotted", "inline", "h", "i"}, "1", 14},
		{[]string{"version"}, "3", 1},
		{[]string{"plugins", "io.containerd.nri.v1.nri", "disable"}, "false", 8},
		{[]string{"plugins", "io.containerd.nri.v1.nri", "socket_path"}, "/run/x#y.sock", 9},
		{[]string{"plugins", "io.containerd.cri.v1.runtime", "enable_cdi"}, "true", 11},
	} {
		if got := s.Get(tc.path...); got.Value != tc.value || got.Line != tc.line {
			t.Errorf("%q: %+v, want %q in line %d", tc.path, got, tc.value, tc.line)
		}
	}
	if got := s.Get("disabled_plugins").List; !slices.Equal(got, []string{"a", "b", "c,d"}) {
		t.Errorf("list %q", got)
	}
	if got := s.Find("disable", "plugins", "io.containerd.nri.v1.nri"); len(got) != 0 {
		t.Errorf("found %+v below its own table", got)
	}
	if got := s.Find("d", "dotted"); len(got) != 1 || got[0].Value != "e" {
		t.Errorf("found %+v", got)
	}
	if _, err := readSettings("b = 1\na = [\n"); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("an array that is not closed: %v", err)
	}
}

// Every setting has a line of the text, and lines do not fall from setting to setting.
func FuzzParseTOML(f *testing.F) {
	f.Add("[a]\nb = [\n\"c\", # d\n]\ne = 'f'\n")
	f.Add("a = \"\\q\"\nb = \"\\ud800\"\n")
	f.Add("a.\"b=\\u003d\" = {c = 1}\n[[d]]\r\ne = 1979-05-27\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		document, _ := parseTOML("f", text)
		line, lines := 1, 1+strings.Count(text, "\n")
		for _, st := range document {
			if st.Line < line || st.Line > lines {
				t.Fatalf("%+v, after line %d of %d", st, line, lines)
			}
			line = st.Line
		}
	})
}
