// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// What --fix changes lies below the root, whatever symlinks lead to it, and a directory
// keeps all of its mode but the write access of others.
func TestDoctorFixesBelowTheRoot(t *testing.T) {
	root, outside := t.TempDir(), filepath.Join(t.TempDir(), "vsw")
	for _, dir := range []string{outside, filepath.Join(root, outside), filepath.Join(root, "etc/jackfield")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// The link is absolute: it leads to the same path below the root.
	if err := os.Symlink(outside, filepath.Join(root, "vsw")); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{outside, filepath.Join(root, outside)} {
		if err := unix.Chmod(dir, 0o2777); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "etc/jackfield/config.yaml"), []byte("sockets: {roots: [/vsw]}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	Run(t.Context(), []string{"doctor", "--root", root, "--fix"}, Env{Stdin: &bytes.Buffer{}, Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" }})
	if !strings.Contains(out.String(), "fixed    sockets") {
		t.Errorf("nothing was fixed:\n%s%s", &out, &errs)
	}
	for dir, want := range map[string]uint32{outside: 0o2777, filepath.Join(root, outside): 0o2755} {
		var st unix.Stat_t
		if err := unix.Stat(dir, &st); err != nil {
			t.Fatal(err)
		}
		if st.Mode&0o7777 != want {
			t.Errorf("%s has mode %04o, want %04o", dir, st.Mode&0o7777, want)
		}
	}
}
