// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// transientSpec is a CDI file that every command of trustCommands reads. The name has the ID of a claim.
const transientSpec = "/var/run/cdi/v.com-c_6f3c2f5e-4b4f-4d3a-9a53-0d4f6b2e7c11.json"

// trustCommands are the commands that read CDI files, with a text of the output if they use the device of transientSpec.
var trustCommands = []struct {
	args []string // ROOT is the root
	used string
}{
	{[]string{"validate", "--root", "ROOT", filepath.Dir(transientSpec)}, "ok (1 device"},
	{[]string{"devices", "--root", "ROOT"}, "v.com/c=d"},
	{[]string{"cdi", "transient", "--root", "ROOT"}, "v.com/c"},
	{[]string{"explain", "--root", "ROOT", "ROOT/pod.yaml"}, `CDI device "v.com/c=d": injected`},
	{[]string{"doctor", "--root", "ROOT"}, "ok       cdi"},
	{[]string{"inject", "--root", "ROOT", "--spec", "ROOT/spec.json", "--cdi-device", "v.com/c=d"}, "A=1"},
}

const (
	treeOwner = 12345
	treeOther = 12346
)

// All commands trust the same files, also below --root: those of root and of the user who runs the command, which nobody
// else can write. So a user can check a tree of their own, and root injects nothing that another user wrote.
func TestCommandsTrustTheSameFiles(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file to another user")
	}
	for _, c := range []struct {
		name   string
		caller int
		spoil  func(file string) error // file or its directory
		used   bool
	}{
		{"root's tree", 0, func(string) error { return nil }, true},
		{"root's tree, read by a user", treeOwner, func(string) error { return nil }, true},
		{"a user's tree", treeOwner, func(file string) error { return os.Chown(file, treeOwner, treeOwner) }, true},
		{"a user's tree of mode 0664", treeOwner, func(file string) error {
			return errors.Join(os.Chown(file, treeOwner, treeOwner), os.Chmod(file, 0o664))
		}, true},
		{"a user's directory", treeOwner, func(file string) error {
			return os.Chown(filepath.Dir(file), treeOwner, treeOwner)
		}, true},
		{"another user's file", treeOwner, func(file string) error { return os.Chown(file, treeOther, 0) }, false},
		{"a user's file, read by root", 0, func(file string) error { return os.Chown(file, treeOwner, 0) }, false},
		{"a user's directory, read by root", 0, func(file string) error {
			return os.Chown(filepath.Dir(file), treeOwner, 0)
		}, false},
		{"file of all users", 0, func(file string) error { return os.Chmod(file, 0o646) }, false},
		{"file of another group", 0, func(file string) error {
			return errors.Join(os.Chown(file, 0, treeOwner), os.Chmod(file, 0o664))
		}, false},
		{"directory of all users", 0, func(file string) error { return os.Chmod(filepath.Dir(file), 0o777) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			state := nodeState{files: map[string]string{"/etc/cdi/a.json": "", transientSpec: goodSpec, "/spec.json": smallSpec}}
			root := state.create(t)
			makeReadable(t, root)
			if err := c.spoil(filepath.Join(root, transientSpec)); err != nil {
				t.Fatal(err)
			}
			for _, command := range trustCommands {
				out := runAs(t, c.caller, root, command.args)
				if strings.Contains(out, command.used) != c.used {
					t.Errorf("%s: the device is used: %v, must be %v:\n%s", command.args[0], !c.used, c.used, out)
				}
			}
		})
	}
}

// A configuration below --root needs the owner that jackfield-nri requires, too.
func TestCommandsTrustTheSameConfiguration(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file to another user")
	}
	for _, c := range []struct {
		name          string
		caller, owner int
		mode          os.FileMode
		trusted       bool
	}{
		{"root's", 0, 0, 0o644, true},
		{"root's, read by a user", treeOwner, 0, 0o644, true},
		{"a user's", treeOwner, treeOwner, 0o644, true},
		{"another user's", treeOwner, treeOther, 0o644, false},
		{"a user's, read by root", 0, treeOwner, 0o644, false},
		{"of all users", 0, 0, 0o646, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			state := nodeState{files: map[string]string{transientSpec: goodSpec, "/spec.json": smallSpec}}
			root := state.create(t)
			makeReadable(t, root)
			file := filepath.Join(root, "/etc/jackfield/config.yaml")
			if err := errors.Join(os.Chown(file, c.owner, 0), os.Chmod(file, c.mode)); err != nil {
				t.Fatal(err)
			}
			for _, command := range append(trustCommands[1:], trustCommands[0]) {
				if command.args[0] == "validate" {
					command.args = append(command.args[:3:3], "/etc/jackfield/config.yaml")
				}
				out := runAs(t, c.caller, root, command.args)
				refused := strings.Contains(out, "it must belong to root") || strings.Contains(out, "writable by its owner alone")
				if refused == c.trusted {
					t.Errorf("%s: the configuration is trusted: %v, must be %v:\n%s", command.args[0], !refused, c.trusted, out)
				}
			}
		})
	}
}

// hooks.d files and their programs run as root, so they have the same rule.
func TestCommandsTrustTheSameHooks(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file to another user")
	}
	const file, program = "/etc/hooks.d/a.json", "/usr/bin/hook"
	commands := map[string]string{ // with a text of the output if they use the hook
		"validate /etc/hooks.d": "ok (1 hook)", "doctor": "ok       hooks", "explain ROOT/pod.yaml": `hook "a.json": injected`,
	}
	for _, c := range []struct {
		name          string
		path          string
		caller, owner int
		used          bool
	}{
		{"root's", file, 0, 0, true},
		{"a user's", file, treeOwner, treeOwner, true},
		{"a user's, read by root", file, 0, treeOwner, false},
		{"another user's", file, treeOwner, treeOther, false},
		{"a user's program, read by root", program, 0, treeOwner, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			state := nodeState{files: map[string]string{
				"/etc/jackfield/config.yaml": "hooks: {dirs: [/etc/hooks.d]}\npolicy: {rules: [{name: r, for: {namespaces: [n]}, " +
					`allow: {cdi: ["v.com/c=*"], hooks: ["` + program + `"]}}]}`,
				file: `{"version": "1.0.0", "hook": {"path": "` + program + `"}, "when": {"always": true},
					"stages": ["createRuntime"]}`,
				program: "#!/bin/sh\n",
			}}
			root := state.create(t)
			makeReadable(t, root)
			if err := os.Chown(filepath.Join(root, c.path), c.owner, 0); err != nil {
				t.Fatal(err)
			}
			for command, text := range commands {
				out := runAs(t, c.caller, root, append(strings.Fields(command), "--root", root))
				if strings.Contains(out, text) != c.used {
					t.Errorf("%s: the hook is used: %v, must be %v:\n%s", command, !c.used, c.used, out)
				}
			}
		})
	}
}

// makeReadable lets every user read a tree.
func makeReadable(t *testing.T, root string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			err = os.Chmod(path, 0o755)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// runAs runs a command as a user, and returns all output.
func runAs(t *testing.T, uid int, root string, args []string) string {
	t.Helper()
	var resolved []string
	for _, arg := range args {
		resolved = append(resolved, strings.Replace(arg, "ROOT", root, 1))
	}
	if uid != 0 {
		if err := errors.Join(syscall.Setegid(uid), syscall.Seteuid(uid)); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := errors.Join(syscall.Seteuid(0), syscall.Setegid(0)); err != nil {
				t.Fatal(err)
			}
		}()
	}
	var out bytes.Buffer
	noEnv := func(string) string { return "" }
	Run(t.Context(), resolved, Env{Stdin: &bytes.Buffer{}, Stdout: &out, Stderr: &out, Getenv: noEnv})
	return removeColors(out.String())
}
