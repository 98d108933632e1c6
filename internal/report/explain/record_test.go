// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// An ID may be shortened as the tools of runtimes do, unless two sandboxes share the beginning.
func TestFindSandboxByBeginningOfID(t *testing.T) {
	dir := t.TempDir()
	host, err := hostfs.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := config.LoadOrDefault(host, "", config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	first, second, unknown := strings.Repeat("a", 64), "aab"+strings.Repeat("c", 61), strings.Repeat("d", 64)
	files := filepath.Join(dir, cfg.DeviceInfo.CNIDir)
	if err := os.MkdirAll(files, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{first + "_net1", first + "_net2", second + "_net1"} {
		if err := os.WriteFile(filepath.Join(files, "ns-nad-"+name), []byte("{}"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for id, want := range map[string]struct {
		whole    string
		recorded bool
	}{"": {"", true}, "aaa": {first, true}, "aab": {second, true}, first: {first, true}, unknown: {unknown, false}} {
		whole, recorded, err := FindSandbox(host, cfg, id)
		if err != nil || whole != want.whole || recorded != want.recorded {
			t.Errorf("%q: got %q, %v, %v, want %+v", id, whole, recorded, err, want)
		}
	}
	for id, is := range map[string]func(error) bool{"aa": errdefs.IsInvalidArgument, "d": errdefs.IsNotFound, "../a": errdefs.IsInvalidArgument} {
		if _, _, err := FindSandbox(host, cfg, id); !is(err) || !strings.HasPrefix(err.Error(), "--sandbox-id: ") {
			t.Errorf("%q: %v", id, err)
		}
	}
	if _, _, err := FindSandbox(host, cfg, "aa"); !strings.Contains(err.Error(), "such as aaaaaaaaaaaaa and aabcccccccccc;") {
		t.Error(err)
	}
}
