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

// A container that does not run as root can use a socket of the host's root, also after the socket
// was re-created. A container that runs as another user cannot. These runtimes do not report the
// container's user, so the configuration names it.
func TestNonRootContainerUsesSocket(t *testing.T) {
	for _, way := range []string{"acl", "group", "owner"} {
		t.Run(way, func(t *testing.T) {
			e2e.EachShipped(t, func(t *testing.T, h *e2e.H) {
				h.MkdirAll("/run/vsw")
				config := strings.Replace(nodeConfig, "sockets: {", "sockets: {access: "+way+`, user: "1000:1001", `, 1)
				h.StartPlugin(node.PluginOptions{Config: config})
				const path = "/run/vsw/port1/vhost.sock"
				start := func(name string, mode os.FileMode) *vswitch.Server { return vhostUserAt(t, h, path, name, mode) }
				s := start("one", 0o755)
				pod := h.RunPod(node.PodOptions{Name: "users", Namespace: "dpdk-1"})
				// The mode and owner that jackfield-cni sets, for root.
				appDir := "/run/vsw/" + pod.ID[:12] + "-0011aabbccdd-net2"
				createAsCNI(t, h, pod, appDir)
				devinfo(h, pod, "red", "net1", vhostUser("client", "/var"+path))
				devinfo(h, pod, "blue", "net2", vhostUser("server", "/var"+appDir+"/app.sock"))
				devinfo(h, pod, "pink", "net3", vhostUser("server", "/var/run/vsw/made/app.sock"))
				ctr := pod.Run(node.ContainerOptions{Name: "user", User: 1000, Group: 1001})
				other := pod.Run(node.ContainerOptions{Name: "other", User: 2000, Group: 2001})
				if got := ctr.Output("id", "-u"); got != "1000" {
					t.Fatalf("the container runs as %s", got)
				}
				works := func(name string) {
					t.Helper()
					for _, p := range []string{"$JACKFIELD_NET1_SOCKET", "/var" + path} {
						eventually(h, ctr, vswitch.Greeting(name), "sockclient connect "+p)
						if out, errs, code := other.Exec("sh", "-c", "sockclient connect "+p); code == 0 || !strings.Contains(errs, "permission denied") {
							t.Errorf("another user: status %d, %q %q, want permission denied", code, out, errs)
						}
					}
				}
				works("one")
				if err := s.Crash(); err != nil {
					t.Fatal(err)
				}
				start("two", 0o600)
				works("two")
				// The vswitch sets the mode late.
				if err := os.Chmod(path, 0o700); err != nil {
					t.Fatal(err)
				}
				works("two")
				for _, c := range []struct{ variable, onHost string }{{"$JACKFIELD_NET2_SOCKET", appDir}, {"$JACKFIELD_NET3_SOCKET", "/run/vsw/made"}} {
					if out, errs, code := other.Exec("sh", "-c", "sockclient listen "+c.variable+" x 1"); code == 0 || !strings.Contains(errs, "permission denied") {
						t.Errorf("another user in %s: status %d, %q %q, want permission denied", c.onHost, code, out, errs)
					}
					fromInside(t, h, ctr, c.variable, c.onHost+"/app.sock")
				}
				closedToOthers(t, path)
			})
		})
	}
}

// vhostUserAt starts a vswitch whose socket has the given mode.
func vhostUserAt(t *testing.T, h *e2e.H, path, name string, mode os.FileMode) *vswitch.Server {
	t.Helper()
	s := h.Vswitch(vswitch.VhostUser, path, name)
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return s
}

// fromInside has the application create its socket at the path that a variable names, and queries it from the
// host.
func fromInside(t *testing.T, h *e2e.H, ctr *e2e.Container, variable, onHost string) {
	ctr.Output("sh", "-c", "sockclient listen "+variable+" 'from inside' 1 >/dev/null 2>&1 &")
	h.Eventually(func() error {
		got, err := vswitch.Ask(t.Context(), onHost)
		if err == nil && got != "from inside" {
			err = fmt.Errorf("the application's socket answers %q", got)
		}
		return err
	})
}

// closedToOthers fails the test if a user other than the granted ones has rights to a socket.
func closedToOthers(t *testing.T, path string) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || st.Mode&0o007 != 0 {
		t.Errorf("others have rights at the socket: mode %04o, %v", st.Mode&0o7777, err)
	}
}
