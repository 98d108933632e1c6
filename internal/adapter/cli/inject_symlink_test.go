// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A spec that becomes a symlink after it was checked is not read: its target was not checked.
func TestSpecThatBecomesSymlinkIsNotRead(t *testing.T) {
	dir := t.TempDir()
	spec, secret := filepath.Join(dir, "config.json"), filepath.Join(dir, "secret")
	if err := errors.Join(os.WriteFile(spec, []byte("{}"), 0o600), os.WriteFile(secret, []byte("secret"), 0o600)); err != nil {
		t.Fatal(err)
	}
	p, err := openInDirectory(dir, "config.json")
	if err != nil || !p.exists {
		t.Fatal(p.exists, err)
	}
	defer p.close()
	if data, err := p.readContent(); err != nil || string(data) != "{}" {
		t.Errorf("the spec is %q, %v", data, err)
	}
	if err := errors.Join(os.Remove(spec), os.Symlink("secret", spec)); err != nil {
		t.Fatal(err)
	}
	if data, err := p.readContent(); !errors.Is(err, unix.ELOOP) {
		t.Errorf("the symlink is read as %q, %v", data, err)
	}
}
