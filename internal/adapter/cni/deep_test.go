// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/port/attach"
)

// A tree that a container nested thousands of levels deep is removed by DEL, and by GC, with a few descriptors: a failing DEL keeps the pod terminating.
func TestDelRemovesDeepTree(t *testing.T) {
	for command, conf := range map[string]string{"DEL": "", "GC": `, "cni.dev/valid-attachments": []`} {
		t.Run(command, func(t *testing.T) {
			n := newNode(t)
			n.mustRun(env("ADD"), confWith(""))
			nestDirectories(t, filepath.Join(n.dir, attach.DefaultSocketDir, socketDirName("fast", testID, "net1")), 1500)
			var limit unix.Rlimit
			testkit.Must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
			open, err := os.ReadDir("/proc/self/fd")
			testkit.Must(t, err)
			low := limit
			low.Cur = uint64(len(open)) + 64
			testkit.Must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &low))
			a := n.run(env(command), confWith(conf))
			testkit.Must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
			if a.code != 0 {
				t.Errorf("code %d, %.300s", a.code, a.all)
			}
			if left := n.files(); len(left) > 0 {
				t.Errorf("left %d files", len(left))
			}
		})
	}
}

// nestDirectories makes a chain of directories below dir.
func nestDirectories(t *testing.T, dir string, levels int) {
	t.Helper()
	at, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	testkit.Must(t, err)
	for range levels {
		testkit.Must(t, unix.Mkdirat(at, "d", 0o755))
		next, err := unix.Openat(at, "d", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		testkit.Must(t, err)
		unix.Close(at)
		at = next
	}
	unix.Close(at)
}
