// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/test/vm"
)

// make vm runs the commands of a pipe in the machine, where a pod has a VF, and ends with them.
func TestMakeVMRunsCommandsOfPipe(t *testing.T) {
	vm.RequireStart(t)
	cmd := exec.CommandContext(t.Context(), "make", "--no-print-directory", "-C", "../../..", "vm")
	cmd.Stdin = strings.NewReader("pod env\njackfield status\nexit\necho not reached\n")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, text := range []string{"JACKFIELD_NET1_EAL=-a 0000:01:10.0", "1 running with injected devices", "The machine is gone."} {
		if !strings.Contains(string(out), text) {
			t.Errorf("%q is missing in: %s", text, out)
		}
	}
	if strings.Contains(string(out), "not reached") {
		t.Errorf("exit has not ended the shell: %s", out)
	}
}
