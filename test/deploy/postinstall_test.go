// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The package lacks Podman's drop-in. Where Podman is, its installation says what to copy; elsewhere it is silent.
func TestPackageNamesDropInForPodman(t *testing.T) {
	bin := t.TempDir()
	run := func() string {
		cmd := exec.Command("/bin/sh", filepath.Join(top, "test/release/scripts/postinstall.sh"))
		cmd.Env = []string{"PATH=" + bin}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	for name, text := range map[string]string{"systemctl": "exit 0", "grep": "exit 1"} { // grep: no file has the directory
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if out := run(); out != "" {
		t.Errorf("without Podman it prints %q", out)
	}
	if err := os.WriteFile(filepath.Join(bin, "podman"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if out := run(); !strings.Contains(out, "copy /usr/share/doc/jackfield/containers.conf to /etc/containers/containers.conf.d/50-jackfield.conf") {
		t.Errorf("with Podman it prints %q", out)
	}
	if err := os.WriteFile(filepath.Join(bin, "grep"), []byte("#!/bin/sh\nexit 0\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if out := run(); out != "" {
		t.Errorf("with the drop-in it prints %q", out)
	}
}
