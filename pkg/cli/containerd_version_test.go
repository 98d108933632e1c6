// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// containerd before 1.7 has no NRI: enable-nri edits nothing, and doctor names the version and the remedy, once.
func TestOldContainerdHasNoNRI(t *testing.T) {
	for line, want := range map[string]string{
		"containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u1\n": "1.6.20",
		"containerd containerd.io v2.1.9 fcd43222d6b07379a4be9786bda52438f0dd16a1\n":    "2.1.9",
		"no version": "",
	} {
		if got := parseContainerdVersion(line); got != want {
			t.Errorf("parseContainerdVersion(%q) = %q, want %q", line, got, want)
		}
	}
	bin := t.TempDir()
	script := "#!/bin/sh\necho containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u1\n"
	if err := os.WriteFile(filepath.Join(bin, "containerd"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	run := func(args ...string) (int, string) {
		var out bytes.Buffer
		code := Run(t.Context(), args, Env{Stdin: &bytes.Buffer{}, Stdout: &out, Stderr: &out, Getenv: func(string) string { return "" }})
		return code, out.String()
	}
	file := filepath.Join(bin, "config.toml")
	if code, out := run("enable-nri", "--runtime", "containerd", "--config", file); code != ExitError || !strings.Contains(out, "containerd 1.6.20 has no NRI") || !strings.Contains(out, "1.7 or later") {
		t.Errorf("enable-nri: status %d\n%s", code, out)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("enable-nri wrote the file")
	}
	none := filepath.Join(bin, "none")
	code, out := run("doctor", "--containerd-config", none, "--crio-config", none, "--nri-socket", none, "--config", writeConfig(t, "stateDir: "+none))
	if code != ExitNo || !strings.Contains(out, "containerd 1.6.20 has no NRI") || strings.Contains(out, "enable-nri") || strings.Contains(out, "ERROR    nri") {
		t.Errorf("doctor: status %d\n%s", code, out)
	}
}

func writeConfig(t *testing.T, text string) string {
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}
