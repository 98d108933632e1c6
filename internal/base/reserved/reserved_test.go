// SPDX-License-Identifier: Apache-2.0

package reserved

import "testing"

func TestReservedDirectories(t *testing.T) {
	for dir, want := range map[string]struct {
		tree, dir string
	}{
		"/":              {"", "/"},
		"/run":           {"", "/run"},
		"/run/vsw":       {"", ""},
		"/var/run":       {"", "/var/run"},
		"/var/run/vsw":   {"", ""},
		"/var/lib":       {"", "/var/lib"},
		"/var/lib/x":     {"", ""},
		"/etc":           {"/etc", "/etc"},
		"/etc/cdi":       {"/etc", "/etc"},
		"/etcetera":      {"", ""},
		"/dev/shm/x":     {"/dev", "/dev"},
		"/lib64/x":       {"/lib64", "/lib64"},
		"/libexec":       {"", "/libexec"},
		"/usr/lib/x":     {"/usr", "/usr"},
		"/root/.ssh":     {"/root", "/root"},
		"/tmp":           {"", "/tmp"},
		"/tmp/vsw":       {"", ""},
		"/data/etc/proc": {"", ""},
	} {
		if tree, got := Tree(dir), DirInContainer(dir); tree != want.tree || got != want.dir {
			t.Errorf("%s: tree %q, directory %q; want %q and %q", dir, tree, got, want.tree, want.dir)
		}
	}
}
