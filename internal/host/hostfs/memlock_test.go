// SPDX-License-Identifier: Apache-2.0

package hostfs

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMemlockIsThatOfTheProcess(t *testing.T) {
	var want unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &want); err != nil {
		t.Fatal(err)
	}
	soft, hard, err := Host().Memlock(os.Getpid(), ":")
	if err != nil || soft != want.Cur || hard != want.Max {
		t.Errorf("%d, %d, %v; want %+v", soft, hard, err, want)
	}
}

func TestMemlockNeedsProcessOfTheSandbox(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"limits": "Limit                     Soft Limit           Hard Limit           Units     \nMax locked memory         65536                unlimited            bytes     \n",
		"cgroup": "0::/kubepods.slice/cri-containerd-abc.scope\n"} {
		file := filepath.Join(dir, "proc/7", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	root, err := New(dir)
	if err != nil {
		t.Fatal(err)
	}
	if soft, hard, err := root.Memlock(7, "abc"); soft != 65536 || hard != math.MaxUint64 || err != nil {
		t.Errorf("%d, %d, %v", soft, hard, err)
	}
	for _, group := range []string{"abd", ""} {
		if _, _, err := root.Memlock(7, group); err == nil {
			t.Errorf("group %q: no error", group)
		}
	}
}
