// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// containerd before 1.7 has no NRI: enable-nri writes nothing, and doctor names the version and the remedy, once.
func TestOldContainerdHasNoNRI(t *testing.T) {
	for line, want := range map[string]string{
		"containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u1\n": "1.6.20",
		"containerd containerd.io v2.1.9 fcd43222d6b07379a4be9786bda52438f0dd16a1\n":    "2.1.9",
		"crio version 1.36.3\nGitCommit: x\nGoVersion: go1.26.6\n":                      "1.36.3",
		"no version": "",
	} {
		if got := parseRuntimeVersion(line); got != want {
			t.Errorf("parseRuntimeVersion(%q) = %q, want %q", line, got, want)
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
	if code, out := run("enable-nri", "--runtime", "containerd", "--runtime-config", file); code != ExitError || !strings.Contains(out, "containerd 1.6.20 has no NRI") || !strings.Contains(out, "1.7 or later") {
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

// containerd 2 has NRI on where its configuration does not set it, and containerd 1.7 has it off.
func TestNRIIsOnByDefaultSinceContainerd2(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("PATH", bin)
	file := filepath.Join(bin, "config.toml")
	text := "version = 2\n[plugins.\"io.containerd.nri.v1.nri\"]\nsocket_path = \"" + bin + "/none\"\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for version, want := range map[string]string{
		"1.7.24": file + ":2: set disable = false in [plugins.",
		"2.1.9":  "NRI is on and lets plugins connect, by default: nothing to do",
	} {
		script := "#!/bin/sh\necho containerd containerd.io v" + version + " x\n"
		if err := os.WriteFile(filepath.Join(bin, "containerd"), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		args := []string{"enable-nri", "--dry-run", "--runtime", "containerd", "--runtime-config", file}
		Run(t.Context(), args, Env{Stdin: &bytes.Buffer{}, Stdout: &out, Stderr: &out, Getenv: func(string) string { return "" }})
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s: %s", version, out.String())
		}
	}
}

func writeConfig(t *testing.T, text string) string {
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}
