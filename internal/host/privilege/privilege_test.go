// SPDX-License-Identifier: Apache-2.0

package privilege

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
)

// With --least-privilege every thread has the four capabilities and cannot get others. The plugin is
// built as it is shipped: a program with cgo, as under -race, cannot drop capabilities in every
// thread.
func TestLeastPrivilegeIsForEveryThread(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("not root")
		}
		t.Skip("only root has capabilities to give up")
	}
	bin := filepath.Join(t.TempDir(), "jackfield-nri")
	build := exec.Command("go", "build", "-tags", "grpcnotrace", "-trimpath", "-o", bin, "../../../cmd/jackfield-nri")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Hangs)
	defer cancel()
	var log strings.Builder
	cmd := exec.CommandContext(ctx, bin, "--least-privilege", "--root", t.TempDir(), "--nri-socket", filepath.Join(t.TempDir(), "nri.sock"))
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cmd.Process.Signal(unix.SIGTERM)
		cmd.Wait()
	}()
	want := fmt.Sprintf("%016x", neededCapabilities)
	for {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		wrong, seen := "", 0
		for _, file := range threads {
			text, err := os.ReadFile(file)
			if err != nil {
				continue // the thread has ended
			}
			seen++
			for line := range strings.Lines(string(text)) {
				key, value, _ := strings.Cut(strings.TrimSpace(line), ":\t")
				expected := map[string]string{"CapEff": want, "CapPrm": want, "CapBnd": want, "CapInh": "0000000000000000", "CapAmb": "0000000000000000", "NoNewPrivs": "1"}[key]
				if expected != "" && expected != value {
					wrong = file + ": " + strings.TrimSpace(line)
				}
			}
		}
		if seen > 1 && wrong == "" {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%d threads; %s\n%s", seen, wrong, log.String())
		case <-time.After(10 * time.Millisecond):
		}
	}
}
