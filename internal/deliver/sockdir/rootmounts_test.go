// SPDX-License-Identifier: Apache-2.0

package sockdir

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

func TestRootWithUnsafeMountIsReported(t *testing.T) {
	top := mountHost(t)
	host, err := hostfs.New(top)
	testkit.Must(t, err)
	for _, dir := range []string{"run/jackfield", "run/vsw"} {
		testkit.Must(t, os.MkdirAll(filepath.Join(top, dir), 0o755))
	}
	for root, flags := range map[string]uintptr{"run/safe": unix.MS_NOSUID | unix.MS_NODEV, "run/suid": unix.MS_NODEV, "run/dev": unix.MS_NOSUID} {
		testkit.Must(t, os.MkdirAll(filepath.Join(top, root), 0o755))
		testkit.Must(t, unix.Mount("test", filepath.Join(top, root), "tmpfs", flags, ""))
	}
	risks := CheckRootMounts(host, "/run/jackfield", []string{"/run/safe", "/run/missing"}, false)
	if len(risks) > 0 {
		t.Errorf("private root has risks: %+v", risks)
	}
	risks = CheckRootMounts(host, "/run/jackfield", []string{"/run/safe", "/run/suid", "/run/dev", "/run/vsw"}, false)
	if len(risks) != 2 || !slices.Equal(risks[0].Roots, []string{"/run/suid", "/run/dev", "/run/vsw"}) || !slices.Equal(risks[1].Roots, []string{"/run/vsw"}) {
		t.Fatalf("got %+v", risks)
	}
	if !strings.Contains(risks[0].Found, "nosuid") || !strings.Contains(risks[1].Found, "/run/jackfield") || risks[0].Remedy == "" || risks[1].Remedy == "" {
		t.Errorf("got %+v", risks)
	}
}
