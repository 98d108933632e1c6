// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackfield/jackfield/test/demo/asciicast"
	"github.com/jackfield/jackfield/test/e2e/jail"
)

// run builds the demonstration and runs it, and returns its screen.
func run(t *testing.T, env ...string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("skipped: left out of short runs")
	}
	bin := filepath.Join(t.TempDir(), "demo")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("build the demonstration: %v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute) // what it needs is downloaded at first
	defer cancel()
	cmd := exec.CommandContext(ctx, bin)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the demonstration: %v\n%s", err, out)
	}
	return string(out)
}

// On a real containerd the container has the device and both sockets. After a crash of the vswitch
// it reaches the new socket.
func TestDemoRunsOnRealContainerd(t *testing.T) {
	if why := notReal(); why != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("cannot run, and CI promises that it can: %v", why)
		}
		t.Skipf("skipped: %v", why)
	}
	if !jail.Outside() {
		t.Fatal("a jail inside a jail")
	}
	screen := run(t)
	for _, want := range []string{"A private containerd", greeting(vhostSocket), greeting(memifSocket), greeting(vhostSocket) + ", restarted", "demo: ok"} {
		if !strings.Contains(screen, want) {
			t.Errorf("the screen lacks %q:\n%s", want, screen)
		}
	}
	compareRecording(t, screen)
}

// compareRecording checks that the recording in the documentation has each line that the demonstration prints now.
func compareRecording(t *testing.T, screen string) {
	t.Helper()
	cast := readRecording(t)
	recorded := map[string]bool{}
	for line := range strings.Lines(cast.Text()) {
		recorded[normalize(line)] = true
	}
	_, screen, found := strings.Cut(screen, "\n── ")
	if !found {
		t.Fatalf("the screen has no heading:\n%s", screen)
	}
	for line := range strings.Lines("── " + screen) {
		if !recorded[normalize(line)] {
			t.Errorf("docs/images/demo.svg lacks the line below: run make recording\n%s", line)
		}
	}
}

// normalize replaces what differs between two runs: numbers, and the date of a file.
func normalize(line string) string {
	line = regexp.MustCompile(`[A-Z][a-z]{2} [ \d]\d \d\d:\d\d`).ReplaceAllString(strings.TrimSpace(line), "DATE")
	return regexp.MustCompile(`\d+`).ReplaceAllString(line, "N")
}

func readRecording(t *testing.T) asciicast.Cast {
	t.Helper()
	data, err := os.ReadFile("testdata/demo.cast")
	if err != nil {
		t.Fatal(err)
	}
	cast, err := asciicast.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	return cast
}

// docs/images/demo.svg is drawn from the recording, and small enough for a page.
func TestPictureIsOfRecording(t *testing.T) {
	picture, err := os.ReadFile("../../docs/images/demo.svg")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(picture, readRecording(t).SVG()) {
		t.Error("docs/images/demo.svg is not of test/demo/testdata/demo.cast: run make recording")
	}
	if len(picture) > 150_000 {
		t.Errorf("docs/images/demo.svg has %d bytes", len(picture))
	}
	if !strings.Contains(string(picture), ">demo: ok</text>") {
		t.Error("docs/images/demo.svg has no end")
	}
}

// Without containerd the demonstration says so, and shows the same plugin on the embedded runtime.
func TestDemoRunsOnEmbeddedRuntime(t *testing.T) {
	screen := run(t, "JACKFIELD_DEMO=embedded")
	for _, want := range []string{"No real containerd here: JACKFIELD_DEMO=embedded", "/dev/acme0", greeting(vhostSocket), greeting(memifSocket), "demo: ok"} {
		if !strings.Contains(screen, want) {
			t.Errorf("the screen lacks %q:\n%s", want, screen)
		}
	}
}
