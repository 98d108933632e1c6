// SPDX-License-Identifier: Apache-2.0

package filewatch

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// Every way to change a file is reported, also the creation of its directory. Another file's change
// is not.
func TestEachChangeIsReported(t *testing.T) {
	root := t.TempDir()
	host, err := hostfs.New(root)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "etc")
	file := filepath.Join(dir, "config.yaml")
	var calls atomic.Int64
	w := Start(host, "/etc/config.yaml", func() { calls.Add(1) })
	defer w.Close()
	steps := []struct {
		name   string
		change func() error
	}{
		{"created with its directory", func() error {
			if err := os.Mkdir(dir, 0o755); err != nil {
				return err
			}
			return os.WriteFile(file, []byte("1"), 0o644)
		}},
		{"written in place", func() error { return os.WriteFile(file, []byte("22"), 0o644) }},
		{"renamed into place", func() error {
			if err := os.WriteFile(file+".new", []byte("3"), 0o644); err != nil {
				return err
			}
			return os.Rename(file+".new", file)
		}},
		{"mode", func() error { return os.Chmod(file, 0o600) }},
		{"removed", func() error { return os.Remove(file) }},
	}
	for _, step := range steps {
		before := calls.Load()
		if err := step.change(); err != nil {
			t.Fatal(err)
		}
		if !testkit.Until(func() bool { return calls.Load() > before }) {
			t.Errorf("%s: not reported", step.name)
		}
	}
}

// After Close nothing is reported.
func TestCloseEndsReports(t *testing.T) {
	root := t.TempDir()
	host, err := hostfs.New(root)
	if err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int64
	w := Start(host, "/file", func() { calls.Add(1) })
	w.Close()
	before := calls.Load()
	if err := os.WriteFile(filepath.Join(root, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if calls.Load() != before {
		t.Error("a change was reported after Close")
	}
	var none *Watch
	none.Close()
}
