// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestRootWithUnsafeMountIsReported(t *testing.T) {
	n := newNode(t)
	for root, flags := range map[string]uintptr{"run/safe": unix.MS_NOSUID | unix.MS_NODEV, "run/suid": unix.MS_NODEV, "run/dev": unix.MS_NOSUID} {
		must(t, os.MkdirAll(n.path(root), 0o755))
		must(t, unix.Mount("test", n.path(root), "tmpfs", flags, ""))
	}
	risks := CheckRootMounts(n.host, "/run/jackfield", []string{"/run/safe", "/run/missing"}, false)
	if len(risks) > 0 {
		t.Errorf("private root has risks: %+v", risks)
	}
	risks = CheckRootMounts(n.host, "/run/jackfield", []string{"/run/safe", "/run/suid", "/run/dev", "/run/vsw"}, false)
	if len(risks) != 2 || !slices.Equal(risks[0].Roots, []string{"/run/suid", "/run/dev", "/run/vsw"}) || !slices.Equal(risks[1].Roots, []string{"/run/vsw"}) {
		t.Fatalf("got %+v", risks)
	}
	if !strings.Contains(risks[0].Found, "nosuid") || !strings.Contains(risks[1].Found, "/run/jackfield") || risks[0].Remedy == "" || risks[1].Remedy == "" {
		t.Errorf("got %+v", risks)
	}
}
