// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// tutorialBlocks returns the fenced blocks of the Podman tutorial in a language, in the page's order.
func tutorialBlocks(t *testing.T, lang string) []string {
	t.Helper()
	page, err := os.ReadFile("../../../docs/tutorials/podman.md")
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, m := range regexp.MustCompile("(?ms)^```"+lang+"\n(.*?)^```$").FindAllSubmatch(page, -1) {
		blocks = append(blocks, string(m[1]))
	}
	return blocks
}

// The files, commands and outputs of the Podman tutorial are correct.
func TestPodmanTutorial(t *testing.T) {
	files, commands, outputs := tutorialBlocks(t, "yaml"), tutorialBlocks(t, "sh"), tutorialBlocks(t, "text")
	if len(files) != 2 || len(commands) != 6 || len(outputs) != 4 {
		t.Fatalf("the page has %d files, %d blocks of commands and %d outputs, want 2, 6 and 4", len(files), len(commands), len(outputs))
	}
	eachRuntime(t, func(t *testing.T, h *host, runtime string) {
		h.install()
		h.writeSystemFile("/etc/cdi/example.yaml", files[0])
		h.writeSystemFile("/etc/jackfield/config.yaml", files[1])

		validate := strings.Fields(commands[3])
		out, err := exec.Command(filepath.Join(h.path("prefix/bin"), validate[0]), validate[1:]...).CombinedOutput()
		if err != nil || string(out) != outputs[1] {
			t.Errorf("validate: %v, printed\n%swant\n%s", err, out, outputs[1])
		}

		run := func(command string) (string, error) {
			t.Helper()
			option := regexp.MustCompile(`--annotation (\S+) docker\.io/library/alpine (.*)\n`).FindStringSubmatch(command)
			if option == nil {
				t.Fatalf("%q is not a podman run with an annotation and alpine", command)
			}
			h.write("rootfs/etc/group", "root:x:0:\n")
			shell := strings.TrimSuffix(strings.TrimPrefix(option[2], "sh -c '"), "'")
			return h.runInstalled(runtime, "--annotation", option[1], "--rootfs", h.rootfs(), "/bin/sh", "-c", shell)
		}
		date := regexp.MustCompile(`[A-Z][a-z]{2} +\d+ +\d\d:\d\d`)
		got, err := run(commands[4])
		if err != nil || date.ReplaceAllString(got, "DATE") != date.ReplaceAllString(outputs[2], "DATE") {
			t.Errorf("run: %v, printed\n%swant\n%s", err, got, outputs[2])
		}
		got, err = run(commands[5])
		changing := regexp.MustCompile(`[0-9a-f]{64}|time="[^"]*"`)
		checkRefused(t, changing.ReplaceAllString(got, "..."), err, strings.TrimSpace(changing.ReplaceAllString(strings.ReplaceAll(outputs[3], `\`, ""), "...")))
	})
}
