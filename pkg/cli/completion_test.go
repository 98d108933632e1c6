// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
)

func printed(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if status := Run(t.Context(), args, Env{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" }}); status != ExitOK {
		t.Fatalf("jackfield %s exits with %d: %s", strings.Join(args, " "), status, errs.String())
	}
	return out.String()
}

// The scripts are of their shell, and what they ask the program is answered.
func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		script := printed(t, "completion", shell)
		if !strings.Contains(script, "jackfield") {
			t.Errorf("%s: the script does not name the command", shell)
		}
		path, err := exec.LookPath(shell)
		if err != nil {
			t.Logf("no %s here: its script is not read", shell)
			continue
		}
		cmd := exec.Command(path, "-n")
		cmd.Stdin = strings.NewReader(script)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s cannot read its script: %v\n%s", shell, err, out)
		}
	}
	for ask, want := range map[string]string{"exp": "explain", "explain --po": "--pod", "deviceinfo ": "list"} {
		if got := printed(t, append([]string{"__complete"}, strings.Split(ask, " ")...)...); !strings.Contains(got, want) {
			t.Errorf("%q is completed by %q, want %q", ask, got, want)
		}
	}
}
