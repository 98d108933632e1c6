// SPDX-License-Identifier: Apache-2.0

package hostfs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// pin mounts the namespace of a process that ends on a file, as CRI-O does, and returns the file.
func pin(t *testing.T, kind string, attr *syscall.SysProcAttr) string {
	t.Helper()
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = attr
	if err := cmd.Start(); err != nil {
		t.Skipf("skipped: cannot create a %s namespace: %v", kind, err)
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	file := filepath.Join(t.TempDir(), "ns")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(fmt.Sprintf("/proc/%d/ns/%s", cmd.Process.Pid, kind), file, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(file, unix.MNT_DETACH) })
	return file
}

func TestOwnerOutsideOfPinnedNamespace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root can mount")
	}
	file := pin(t, "user", &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 200000, Size: 65536}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 300000, Size: 65536}}})
	for inside, want := range map[Owner]Owner{
		{0, 0}:         {200000, 300000},
		{1000, 2000}:   {201000, 302000},
		{65535, 65535}: {265535, 365535},
	} {
		if got, err := Host().OwnerOutside(file, inside); err != nil || got != want {
			t.Errorf("%v is %v, %v; want %v", inside, got, err, want)
		}
	}
	for _, inside := range []Owner{{70000, 0}, {0, 70000}} {
		if got, err := Host().OwnerOutside(file, inside); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("%v has no mapping, and is %v, %v", inside, got, err)
		}
	}
}

func TestOwnerOutsideNeedsUserNamespace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root can mount")
	}
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string]string{
		"a file":            plain,
		"another namespace": pin(t, "uts", &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUTS}),
	} {
		if got, err := Host().OwnerOutside(file, Owner{}); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if _, err := Host().OwnerOutside(plain+".missing", Owner{}); !errdefs.IsNotFound(err) {
		t.Errorf("a missing file: %v", err)
	}
}
