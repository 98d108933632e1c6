// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/test/vm"
)

// make vm runs the commands of a pipe, here those of the tutorial, in the machine, and ends with them.
func TestSRIOVTutorial(t *testing.T) {
	vm.RequireStart(t)
	page, err := os.ReadFile("../../../docs/tutorials/sriov.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```console\n(.*?)```").FindSubmatch(page)
	if block == nil {
		t.Fatal("the page has no commands")
	}
	var commands strings.Builder
	var want []string
	for line := range strings.Lines(string(block[1])) {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			commands.WriteString(command)
		} else {
			want = append(want, strings.TrimSpace(line))
		}
	}
	cmd := exec.CommandContext(t.Context(), "make", "--no-print-directory", "-C", "../../..", "vm")
	cmd.Stdin = strings.NewReader(commands.String() + "echo not reached\n")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	rest := string(out)
	for _, text := range want {
		_, after, ok := strings.Cut(rest, text)
		if !ok {
			t.Errorf("%q is missing, or not in the page's order, in: %s", text, out)
			continue
		}
		rest = after
	}
	if len(want) < 3 || strings.Contains(string(out), "not reached") {
		t.Errorf("the page has %d outputs, and exit ends the shell: %s", len(want), out)
	}
}
