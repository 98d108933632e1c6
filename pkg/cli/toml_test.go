// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"testing"
)

func TestReadTOML(t *testing.T) {
	f := readTOML(`version = 3 # of the format
disabled_plugins = [
  "a", # one
  'b',
]
imports = ["/etc/containerd/conf.d/*.toml"]
[plugins."io.containerd.nri.v1.nri"]
  disable = false
  socket_path = "/run/x#y.sock"
[plugins.'io.containerd.cri.v1.runtime']
enable_cdi=true
`)
	if got := f.section("")["version"]; got != "3" {
		t.Errorf("version %q", got)
	}
	if got := list(f.section("")["disabled_plugins"]); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("list %q", got)
	}
	nri := f.section(`plugins."io.containerd.nri.v1.nri"`)
	if nri["disable"] != "false" || nri["socket_path"] != "/run/x#y.sock" {
		t.Errorf("section %q", nri)
	}
	if f.section(`plugins."io.containerd.cri.v1.runtime"`)["enable_cdi"] != "true" {
		t.Errorf("%q", f)
	}
}

func FuzzReadTOML(f *testing.F) {
	f.Add("[a]\nb = [\n\"c\", # d\n]\ne = 'f'\n")
	f.Fuzz(func(t *testing.T, text string) {
		for name, section := range readTOML(text) {
			if section == nil {
				t.Errorf("section %q is nil", name)
			}
			for _, v := range section {
				list(v)
			}
		}
	})
}
