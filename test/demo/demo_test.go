// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

// On a real containerd: the container has the device and both sockets, and the one
// whose vswitch crashed, again.
func TestDemo(t *testing.T) {
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
	for _, want := range []string{"A private containerd", greeting(vhostSocket), greeting(memifSocket), greeting(vhostSocket) + ", started again", "demo: ok"} {
		if !strings.Contains(screen, want) {
			t.Errorf("the screen lacks %q:\n%s", want, screen)
		}
	}
}

// Where there can be no containerd it says so, and shows the same plugin.
func TestEmbedded(t *testing.T) {
	screen := run(t, "JACKFIELD_DEMO=embedded")
	for _, want := range []string{"No real containerd here: JACKFIELD_DEMO=embedded", "/dev/acme0", greeting(vhostSocket), greeting(memifSocket), "demo: ok"} {
		if !strings.Contains(screen, want) {
			t.Errorf("the screen lacks %q:\n%s", want, screen)
		}
	}
}
