// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/report/doctor"
)

// --fix follows symlinks below the root only, and removes from a directory's mode only the write access
// of others.
func TestDoctorFixesBelowTheRoot(t *testing.T) {
	root, outside := t.TempDir(), filepath.Join(t.TempDir(), "vsw")
	for _, dir := range []string{outside, filepath.Join(root, outside), filepath.Join(root, "etc/jackfield")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// The symlink is absolute, and is resolved below the root.
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

func TestDoctorTextFitsTheTerminal(t *testing.T) {
	findings := []doctor.Finding{{Check: "nri", Severity: doctor.Unknown, Found: "one two three four fives\n- six " + strings.Repeat("x", 40), Remedy: "seven eight nine ten"}}
	const wrapped = `unknown  nri            one two three four
                        fives
                        - six
                        xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
                        -> seven eight nine
                           ten

0 errors, 0 warnings, 1 unknown
`
	if got := removeColors(doctorText(findings, 47)); got != strings.Replace(wrapped, "nine\n                           ten", "nine ten", 1) {
		t.Errorf("found\n%s", got)
	}
	findings[0].Remedy = "seven eight nine ten eleven"
	if got, want := removeColors(doctorText(findings, 47)), strings.Replace(wrapped, "nine\n                           ten", "nine ten\n                           eleven", 1); got != want {
		t.Errorf("found\n%s\nwant\n%s", got, want)
	}
	if got := doctorText(findings, 0); strings.Count(got, "\n") != 5 {
		t.Errorf("text for a program is wrapped:\n%s", got)
	}
}

// The remedy of CDI files without an owner names a command of this program.
func TestDoctorRemedyNamesACommand(t *testing.T) {
	var out, errs bytes.Buffer
	if status := Run(t.Context(), []string{"cdi", "transient", "--help"}, Env{Stdin: &bytes.Buffer{}, Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" }}); status != ExitOK || !strings.Contains(out.String(), "--alive") {
		t.Error(errs.String())
	}
}
