// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/vswitch"
)

// With sockets.directorySize the host reaches the application's socket. A container that fills its directory
// fills no other file system. The end of the pod leaves no mount.
func TestSocketDirectoryIsBounded(t *testing.T) {
	for _, staging := range []string{"mount", "directory"} {
		e2e.Each(t, func(t *testing.T, h *e2e.H) {
			h.MkdirAll("/run/vsw")
			h.StartPlugin(node.PluginOptions{Config: strings.Replace(nodeConfig, "sockets: {", "sockets: {directorySize: 1Mi, staging: "+staging+", ", 1)})
			before := h.Inventory("/run/vsw", "/run/jackfield")
			pod := h.RunPod(node.PodOptions{Name: "bounded", Namespace: "dpdk-1"})
			devinfo(h, pod, "red", "net1", vhostUser("server", "/var/run/vsw/bounded/app.sock"))
			app := pod.Run(node.ContainerOptions{Name: "app", Command: []string{"sh", "-c", "exec sockclient listen $JACKFIELD_NET1_SOCKET 'from inside'"}})
			app.WaitLogs("listening")
			if got, err := vswitch.Ask(t.Context(), "/run/vsw/bounded/app.sock"); err != nil || got != "from inside" {
				t.Errorf("the application's socket gave %q, %v", got, err)
			}
			other := pod.Run(node.ContainerOptions{Name: "other"})
			free := freeBlocks(t, "/run/vsw")
			_, stderr, code := other.Exec("sh", "-c", "dd if=/dev/zero of=${JACKFIELD_NET1_SOCKET%/*}/fill bs=65536 count=64")
			if code == 0 || !strings.Contains(strings.ToLower(stderr), "no space left") {
				t.Errorf("4 MiB in a directory of 1 MiB: exit status %d, %s", code, stderr)
			}
			fi, err := os.Stat("/run/vsw/bounded/fill")
			if err != nil || fi.Size() == 0 || fi.Size() > 1<<20 {
				t.Errorf("stat of the file on the host: %v, %v", fi, err)
			}
			// Other processes write there as well, but not a MiB.
			if now := freeBlocks(t, "/run/vsw"); now+(1<<20) < free {
				t.Errorf("the file system of the socket root had %d bytes free, and has %d", free, now)
			}
			pod.Remove()
			if err := os.RemoveAll("/run/k8s.cni.cncf.io"); err != nil {
				t.Fatal(err)
			}
			h.NothingLeft(before, "/run/vsw", "/run/jackfield")
			mounts, err := os.ReadFile("/proc/self/mountinfo")
			if err != nil || strings.Contains(string(mounts), "jackfield-sockets") {
				t.Errorf("mounts are left: %v\n%s", err, mounts)
			}
		})
	}
}

// freeBlocks returns the free bytes of the file system that a directory lies in.
func freeBlocks(t *testing.T, dir string) int64 {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Bfree) * st.Bsize
}
