// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"strings"
	"testing"
)

func TestReadTOML(t *testing.T) {
	f, err := readTOML(`version = 3 # of the format
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
`)
	if err != nil {
		t.Fatal(err)
	}
	if got := f.section("dotted", "a", "b.c")["d"]; got != "e" {
		t.Errorf("a dotted key has %q", got)
	}
	if got := f.section()["version"]; got != "3" {
		t.Errorf("version %q", got)
	}
	if got := list(f.section()["disabled_plugins"]); !slices.Equal(got, []string{"a", "b", "c,d"}) {
		t.Errorf("list %q", got)
	}
	nri := f.section("plugins", "io.containerd.nri.v1.nri")
	if nri["disable"] != "false" || nri["socket_path"] != "/run/x#y.sock" {
		t.Errorf("section %q", nri)
	}
	if f.section("plugins", "io.containerd.cri.v1.runtime")["enable_cdi"] != "true" {
		t.Errorf("%q", f)
	}

	if _, err := readTOML("a = [\n"); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("a list that is not closed: %v", err)
	}
}

func FuzzReadTOML(f *testing.F) {
	f.Add("[a]\nb = [\n\"c\", # d\n]\ne = 'f'\n")
	f.Fuzz(func(t *testing.T, text string) {
		read, _ := readTOML(text)
		for name, section := range read {
			if section == nil {
				t.Errorf("section %q is nil", name)
			}
			for _, v := range section {
				list(v)
			}
		}
	})
}
