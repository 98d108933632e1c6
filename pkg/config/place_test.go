// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

// The node's file may be missing, and lies below the host root; one that was asked
// for must be there, and is the caller's own.
func TestLoadAsked(t *testing.T) {
	dir := t.TempDir()
	host, err := hostfs.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := config.LoadAsked(host, ""); err != nil || c.File() != "" {
		t.Errorf("without a file: %v, from %q; want the defaults", err, c.File())
	}
	own := filepath.Join(dir, "own.yaml")
	if _, err := config.LoadAsked(host, own); !errdefs.IsNotFound(err) {
		t.Errorf("a file that was asked for and is not there: %v", err)
	}
	node := filepath.Join(dir, config.DefaultPath)
	for file, text := range map[string]string{own: "stateDir: /run/own\n", node: "stateDir: /run/node\n"} {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for file, want := range map[string]string{own: "/run/own", "": "/run/node"} {
		c, err := config.LoadAsked(host, file)
		if err != nil {
			t.Errorf("%q: %v", file, err)
			continue
		}
		root, path, err := config.Place(host, file)
		if c.StateDir != want || err != nil || path != c.File() || (root == host) != (file == "") {
			t.Errorf("%q: state directory %q from %q, want %q; it is placed at %q below %q: %v", file, c.StateDir, c.File(), want, path, root.Dir(), err)
		}
	}
}
