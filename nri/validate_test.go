// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// The kernel's name of a device counts only if the host's node of that name has the device's number.
func TestKernelNameOfDeviceIsChecked(t *testing.T) {
	root := t.TempDir()
	for _, d := range []string{"dev", "sys/dev/char/1:3"} {
		testkit.Must(t, os.MkdirAll(filepath.Join(root, d), 0o755))
	}
	testkit.Must(t, os.WriteFile(filepath.Join(root, "sys/dev/char/1:3/uevent"), []byte("DEVNAME=vfio0\n"), 0o644))
	host, err := hostfs.New(root)
	testkit.Must(t, err)
	device := &api.LinuxDevice{Path: "/dev/mine", Type: "c", Major: 1, Minor: 3}
	for minor, granted := range map[uint32]bool{5: false, 3: true} {
		node := filepath.Join(root, "dev/vfio0")
		_ = os.Remove(node)
		testkit.Must(t, unix.Mknod(node, unix.S_IFCHR|0o600, int(unix.Mkdev(1, minor))))
		path, err := hostNode(host, device)
		if granted && (err != nil || path != "/dev/vfio0") || !granted && !errdefs.IsPermissionDenied(err) {
			t.Errorf("the node has minor number %d: %q, %v", minor, path, err)
		}
	}
}
