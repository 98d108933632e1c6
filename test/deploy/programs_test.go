// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bytes"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Every program answers --help and --version on standard output with status 0, and an unknown flag on standard error
// with status 2. The CNI plugin has no flags: without CNI_COMMAND it prints a description, as the CNI library does.
func TestProgramsAnswerHelpVersionAndUnknownFlag(t *testing.T) {
	if err := buildPrograms(); err != nil {
		t.Fatal(err)
	}
	sources, err := filepath.Glob(filepath.Join(top, "cmd/*"))
	if err != nil || len(sources) < 7 {
		t.Fatal(sources, err)
	}
	for _, source := range sources {
		name := filepath.Base(source)
		t.Run(name, func(t *testing.T) {
			if name == "jackfield-cni" {
				for _, arg := range []string{"--help", "--version", "--bogus"} {
					if code, out, errs := runProgram(t, name, arg); code != 0 || out != "" ||
						!strings.HasPrefix(errs, "jackfield-cni ") || !strings.Contains(errs, "CNI protocol versions supported: ") {
						t.Errorf("%s: exit status %d, %q, %q", arg, code, out, errs)
					}
				}
				return
			}
			shown := strings.Replace(name, "kubectl-", "kubectl ", 1)
			for _, arg := range []string{"--help", "-h"} {
				code, out, errs := runProgram(t, name, arg)
				if code != 0 || errs != "" {
					t.Errorf("%s: exit status %d, %q", arg, code, errs)
				}
				for _, want := range []string{"\nUsage:\n  " + shown, "\nFlags:\n", "--help ", "--version "} {
					if !strings.Contains(out, want) {
						t.Errorf("%s: the help has no %q:\n%s", arg, want, out)
					}
				}
			}
			if code, out, errs := runProgram(t, name, "--version"); code != 0 || errs != "" ||
				!strings.HasPrefix(out, name+" ") || strings.Count(out, "\n") != 1 {
				t.Errorf("--version: exit status %d, %q, %q", code, out, errs)
			}
			if code, out, errs := runProgram(t, name, "--bogus"); code != 2 || out != "" ||
				!strings.HasPrefix(errs, name+": ") || !strings.Contains(errs, "-bogus") || !strings.Contains(errs, "run `"+shown+" --help`") {
				t.Errorf("--bogus: exit status %d, %q, %q", code, out, errs)
			}
		})
	}
	// The hook that asks the kubelet is a hidden command of jackfield.
	if code, _, errs := runProgram(t, "jackfield", "oci-hook", "--bogus"); code != 2 || !strings.Contains(errs, "-bogus") {
		t.Errorf("oci-hook --bogus: exit status %d, %q", code, errs)
	}
}

// runProgram runs a program with an empty environment and standard input.
func runProgram(t *testing.T, name string, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, name), args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = []string{}, &stdout, &stderr
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
}
