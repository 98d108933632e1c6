// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/cdiregistry"
	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/hostfs"
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

// Of claims and containers the daemon does not know which live: their CDI files are told
// of in one line, with a command that there is.
func TestDoctorTransients(t *testing.T) {
	root := t.TempDir()
	const dir = "/var/run/cdi/"
	const uid = "8d6a7b5c-0f0e-4c1d-9b2a-3e4f5a6b7c8d"
	for i, name := range []string{"k8s.io-gpu_base", "k8s.io-gpu_" + uid, "k8s.io-gpu_9" + uid[1:], "k8s.io-gpu_7" + uid[1:]} {
		file := filepath.Join(root, dir, name+".json")
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf(`{"cdiVersion": "0.6.0", "kind": "k8s.io/gpu", "devices": [{"name": "d%d", "containerEdits": {"env": ["A=b"]}}]}`, i)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	host, err := hostfs.New(root)
	if err != nil {
		t.Fatal(err)
	}
	registry, err := cdiregistry.New(host, []string{strings.TrimSuffix(dir, "/")}, cdiregistry.Options{Trust: cdiregistry.TrustAnyone, DisableWatch: true})
	if err != nil {
		t.Fatal(err)
	}
	defer registry.Close()
	d := doctor{host: host, cfg: config.Default()}
	if n := d.transientOrphans(registry.Snapshot(), []string{uid}, time.Now()); n != 2 || len(d.out) != 1 {
		t.Fatalf("%d files, %+v", n, d.out)
	}
	if f := d.out[0]; !strings.HasPrefix(f.Found, "2 CDI files named by an ID of no pod that lives, as "+dir+"k8s.io-gpu_7") || f.Severity != severityNote {
		t.Errorf("%+v", f)
	}
	words := strings.Fields(strings.SplitN(d.out[0].Remedy, "`", 3)[1])
	var out, errs bytes.Buffer
	if status := Run(t.Context(), append(words[1:3], "--help"), Env{Stdin: &bytes.Buffer{}, Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" }}); status != ExitOK {
		t.Errorf("%q: %s", words, &errs)
	}
}
