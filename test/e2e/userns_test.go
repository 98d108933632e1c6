// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/vswitch"
)

// A pod with a user namespace (hostUsers: false) has its device and its sockets like any other pod: sockets
// of the host, also after a restart of the vswitch, and the directory of its own sockets.
func TestPodWithUserNamespaceGetsAll(t *testing.T) {
	const hostRoot = 200000
	e2e.EachUserNS(t, func(t *testing.T, h *e2e.H) {
		h.MkdirAll("/run/vsw")
		plugin := h.StartPlugin(node.PluginOptions{Config: nodeConfig})
		h.CharDevice("/run/devs/zero", 1, 5)
		h.WriteFile("/run/vendor/lib/driver.so", "library")
		h.WriteFile("/etc/cdi/vendor.json", `{"cdiVersion": "0.6.0", "kind": "vendor.com/net", "devices": [{"name": "dev0", "containerEdits": {
  "deviceNodes": [{"path": "/dev/vendor0", "hostPath": "/run/devs/zero"}],
  "mounts": [{"hostPath": "/run/vendor/lib", "containerPath": "/opt/vendor", "options": ["ro", "bind"]}]}}]}`)
		vsw := h.Vswitch(vswitch.VhostUser, "/run/vsw/port1/vhost.sock", "vhost-user")
		before := h.Inventory("/run/jackfield")
		pod := h.RunPod(node.PodOptions{Namespace: "dpdk-1", UserNS: hostRoot,
			Annotations: map[string]string{"devices.jackfield.dev": "vendor.com/net=dev0"}})
		devinfo(h, pod, "red", "net1", vhostUser("client", "/run/vsw/port1/vhost.sock"))
		devinfo(h, pod, "blue", "net2", vhostUser("server", "/run/vsw/port2/app.sock"))
		h.Vswitch(vswitch.Memif, "/run/vsw/port3/memif.sock", "memif")
		if err := os.Chmod("/run/vsw/port3/memif.sock", 0o700); err != nil {
			t.Fatal(err)
		}
		devinfo(h, pod, "pink", "net3", memif("slave", "/run/vsw/port3/memif.sock"))
		ctr := pod.Run(node.ContainerOptions{Command: []string{"sh", "-c", "exec sockclient listen $JACKFIELD_NET2_SOCKET 'from inside'"}})
		if got := ctr.Output("sh", "-c", "cat /proc/self/uid_map | tr -s ' '"); strings.TrimSpace(got) != fmt.Sprintf("0 %d 65536", hostRoot) {
			t.Fatalf("the container has no user namespace: %q", got)
		}
		if got := ctr.Output("sh", "-c", "head -c 4 /dev/vendor0 | xxd -p; cat /opt/vendor/driver.so"); got != "00000000\nlibrary" {
			t.Errorf("the device and the library have %q", got)
		}
		answer := func(want string) error {
			if out, errs, _ := ctr.Exec("sh", "-c", "sockclient connect $JACKFIELD_NET1_SOCKET"); strings.TrimSpace(out) != want {
				return fmt.Errorf("the host's socket answers %q: %s; it is %s", out, errs, ctr.Output("sh", "-c", "ls -ln $JACKFIELD_NET1_SOCKET"))
			}
			return nil
		}
		h.Eventually(func() error { return answer(vswitch.Greeting("vhost-user")) })
		ctr.WaitLogs("listening")
		if got, err := vswitch.Ask(t.Context(), "/run/vsw/port2/app.sock"); err != nil || got != "from inside" {
			t.Errorf("the application's socket answers %q, %v", got, err)
		}
		var st unix.Stat_t
		if err := unix.Stat("/run/vsw/port2", &st); err != nil || st.Uid != hostRoot || st.Gid != hostRoot {
			t.Errorf("the directory in which the application makes its socket is of user %d, group %d (%v), want %d", st.Uid, st.Gid, err, hostRoot)
		}
		if got := ctr.Output("sh", "-c", "touch /var/run/jackfield/x 2>/dev/null; grep -c interface $JACKFIELD_DEVICES_FILE"); got != "3" {
			t.Errorf("devices.json has %s interfaces: %s", got, ctr.Output("cat", "/var/run/jackfield/devices.json"))
		}
		// The container's root can write to the small file system of the memif socket.
		ctr.Output("sh", "-c", "sockclient connect $JACKFIELD_NET3_SOCKET && touch /var/run/jackfield/net/net3/lock && rm /var/run/jackfield/net/net3/lock")
		if err := vsw.Crash(); err != nil {
			t.Fatal(err)
		}
		h.Vswitch(vswitch.VhostUser, "/run/vsw/port1/vhost.sock", "the next")
		h.Eventually(func() error { return answer(vswitch.Greeting("the next")) })
		// A restarted plugin has the container's record.
		plugin.Kill()
		plugin.Restart()
		devinfo(h, pod, "later", "net4", vhostUser("server", "/run/vsw/port4/app.sock"))
		h.Eventually(func() error {
			err := unix.Stat("/run/vsw/port4", &st)
			if err == nil && (st.Uid != hostRoot || st.Gid != hostRoot) {
				err = fmt.Errorf("the later directory belongs to user %d, group %d, want %d", st.Uid, st.Gid, hostRoot)
			}
			return err
		})
		pod.Remove()
		for _, found := range h.Inventory() {
			if strings.Contains(found, "jackfield-nri") { // the restarted plugin
				before = append(before, found)
			}
		}
		h.NothingLeft(before, "/run/jackfield")
	})
}
