// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// leafCommands returns the commands that do something, each with its words.
func leafCommands(cmd *cobra.Command, words ...string) map[string]*cobra.Command {
	leaves := map[string]*cobra.Command{}
	for _, sub := range cmd.Commands() {
		if sub.HasSubCommands() {
			for line, leaf := range leafCommands(sub, append(words, sub.Name())...) {
				leaves[line] = leaf
			}
		} else if sub.Name() != "help" {
			leaves[strings.Join(append(words, sub.Name()), " ")] = sub
		}
	}
	return leaves
}

// All commands have the same exit statuses: 2 for a mistake in the command line, 3 for what cannot be read. A command
// without a case fails the test.
func TestExitStatusesAreTheSameForAllCommands(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "root/etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	// Command lines that need a file or a directory that cannot be read; "" for commands that read nothing, and for
	// doctor, which reports what cannot be read as a finding.
	unreadable := map[string]string{
		"cdi generate nvidia": "", "cdi transient": "--config missing.yaml", "completion bash": "", "completion fish": "", "completion powershell": "", "completion zsh": "", "version": "",
		"deviceinfo clean": "--config missing.yaml --sandbox-id x",
		"deviceinfo list":  "--config missing.yaml", "deviceinfo show": "missing.json",
		"devices": "--config missing.yaml", "doctor": "", "enable-nri": "--root root --runtime containerd --runtime-config /etc", "explain": "missing.yaml", "inject": "--spec missing.json --cdi-device a/b=c",
		"copy-programs": "jackfield --to /missing/x", "policy check": "missing.yaml", "policy suggest": "missing.log", "policy test": "missing",
		"sockets": "--root root", "status": "--root root", "validate": "missing.json",
	}
	run := func(line string, more ...string) (int, string) {
		var out, errs bytes.Buffer
		args := append(strings.Fields(line), more...)
		return Run(t.Context(), args, Env{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Getenv: func(string) string { return "" }}), out.String() + errs.String()
	}
	for line := range leafCommands(Command(Env{})) {
		if got, text := run(line, "--no-such-flag"); got != ExitUsage {
			t.Errorf("%s --no-such-flag: exit status %d, want %d: %s", line, got, ExitUsage, text)
		}
		args, ok := unreadable[line]
		if !ok {
			t.Errorf("%s has no case here", line)
		}
		if args == "" {
			continue
		}
		if got, text := run(line, strings.Fields(args)...); got != ExitError {
			t.Errorf("%s %s: exit status %d, want %d: %s", line, args, got, ExitError, text)
		}
	}
}
