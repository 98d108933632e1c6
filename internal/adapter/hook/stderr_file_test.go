// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// role is set in the environment of the processes that stand for the runtime and the hook.
const role = "JACKFIELD_TEST_ROLE"

// TestRuntimeAndHook is the runtime and the hook of TestMessageStaysInFileOfRuntime.
func TestRuntimeAndHook(t *testing.T) {
	switch os.Getenv(role) {
	case "runtime":
		fmt.Fprintln(os.Stderr, "before")
		hook := exec.Command(os.Args[0], "-test.run", "^TestRuntimeAndHook$") // with /dev/null as standard error
		hook.Env = append(os.Environ(), role+"=hook")
		if err := hook.Run(); err != nil {
			t.Error(err)
		}
		fmt.Fprintln(os.Stderr, "after")
	case "hook":
		PrintError(errors.New("the reason"))
	}
}

// A runtime whose standard error is a file writes on at its own offset, before and after the hook. Nobody's text is lost.
func TestMessageStaysInFileOfRuntime(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, flags := range map[string]int{"2>file": os.O_TRUNC, "2>>file": os.O_APPEND} {
		file := filepath.Join(t.TempDir(), "stderr")
		f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|flags, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		runtime := exec.Command(program, "-test.run", "^TestRuntimeAndHook$")
		runtime.Env = append(os.Environ(), role+"=runtime")
		runtime.Stderr = f
		err = errors.Join(runtime.Run(), f.Close())
		text, readErr := os.ReadFile(file)
		if want := "before\njackfield-hook: the reason\nafter\n"; err != nil || readErr != nil || string(text) != want {
			t.Errorf("%s: %q, %v, want %q", name, text, errors.Join(err, readErr), want)
		}
	}
}
