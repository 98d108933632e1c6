// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/port/attach"
)

// privateMounts gives the test's thread a mount namespace of its own.
func privateMounts(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("not root, which CI promises")
		}
		t.Skip("skipped: only root mounts")
	}
	runtime.LockOSThread() // for good: the thread ends with the test
	testkit.Must(t, unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS))
	testkit.Must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
}

// mounts lists the lines of mountinfo of what is mounted below the host root.
func (n *node) mounts() (lines []string) {
	n.t.Helper()
	data, err := os.ReadFile("/proc/thread-self/mountinfo")
	testkit.Must(n.t, err)
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, " "+n.dir+"/") {
			lines = append(lines, line)
		}
	}
	return lines
}

const bounded = `, "socketDirSize": "64Ki"`

// ADD bounds the attachment's directory; DEL and GC leave neither the mount nor the directory.
func TestAddBoundsTheDirectory(t *testing.T) {
	privateMounts(t)
	for _, undo := range []string{"DEL", "GC"} {
		n := newNode(t)
		n.list("socketDirSizes: [64Ki]")
		added := n.mustRun(env("ADD"), confWith(bounded))
		if m := n.mounts(); len(m) != 1 || !strings.Contains(m[0], "nosuid,nodev,noexec") {
			t.Fatalf("mounts %q", m)
		}
		dir := filepath.Join(n.dir, attach.DefaultSocketDir, socketDirName("fast", testID, "net1"))
		if err := os.WriteFile(filepath.Join(dir, "fill"), make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("1 MiB in a directory of 64 KiB: %v", err)
		}
		n.mustRun(env("CHECK"), confWith(bounded+`, "prevResult": `+added.out))
		// The size may be gone from the configuration since.
		n.mustRun(env(undo), confWith(`, "cni.dev/valid-attachments": []`))
		if left := append(n.files(), n.mounts()...); len(left) > 0 {
			t.Errorf("%s left %q", undo, left)
		}
	}
}

func TestDelRemovesMountOfKilledAdd(t *testing.T) {
	privateMounts(t)
	for at := 1; ; at++ {
		n := newNode(t)
		n.list("socketDirSizes: [64Ki]")
		if !n.runUntil(at, env("ADD"), confWith(bounded)) {
			if at <= 6 {
				t.Fatalf("ADD has %d steps only", at-1)
			}
			n.mustRun(env("DEL"), confWith(""))
			break
		}
		n.mustRun(env("DEL"), confWith(""))
		if left := append(n.files(), n.mounts()...); len(left) > 0 {
			t.Errorf("killed at step %d: DEL left %q", at, left)
		}
	}
}

func TestSocketDirSizeHasBounds(t *testing.T) {
	n := newNode(t)
	for _, size := range []string{`"0"`, `"4095"`, `"2Gi"`, `"1M"`, `"-1Mi"`, `65536`} {
		if a := n.run(env("ADD"), confWith(`, "socketDirSize": `+size)); a.code != codeConfig || !strings.Contains(a.all, "socketDirSize") {
			t.Errorf("%s: code %d, %s", size, a.code, a.all)
		}
	}
	n.mustRun(env("ADD"), confWith(`, "socketDirSize": ""`))
}
