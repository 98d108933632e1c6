// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// The node's file is below the host root and may be missing. A named file must exist, and is not below the
// host root.
func TestMissingNodeFileMeansDefaults(t *testing.T) {
	dir := t.TempDir()
	host, err := hostfs.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := config.LoadOrDefault(host, "", config.Options{}); err != nil || c.File() != "" {
		t.Errorf("without a file: %v, from %q; want the defaults", err, c.File())
	}
	own := filepath.Join(dir, "own.yaml")
	if _, err := config.LoadOrDefault(host, own, config.Options{}); !errdefs.IsNotFound(err) {
		t.Errorf("a named file that does not exist: %v", err)
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
		c, err := config.LoadOrDefault(host, file, config.Options{})
		if err != nil {
			t.Errorf("%q: %v", file, err)
			continue
		}
		root, path, err := config.Locate(host, file)
		if c.StateDir != want || err != nil || path != c.File() || (root == host) != (file == "") {
			t.Errorf("%q: state directory %q from %q, want %q; it is located at %q below %q: %v", file, c.StateDir, c.File(), want, path, root.Dir(), err)
		}
	}
}
