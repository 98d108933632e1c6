// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/vswitch"
)

// A vswitch restarts in several ways. A running container has the socket by a bind mount of the file, by a
// bind mount of its directory, and from Jackfield. docs/explanation/sockets-that-survive.md has the table.
func TestVswitchRestartWithPlainBinds(t *testing.T) {
	const dir, socket = "/run/vsw/port1", "/run/vsw/port1/vhost.sock"
	listen := func(path string) (*vswitch.Server, error) {
		return vswitch.Listen(vswitch.VhostUser, path, vswitch.Greeting("again"))
	}
	for _, tc := range []struct {
		name      string
		directory bool // a bind mount of the directory shows the new socket
		restart   func() (*vswitch.Server, error)
	}{
		{"the socket is removed and created again", true, func() (*vswitch.Server, error) {
			return listen(socket) // which removes it first
		}},
		{"a new socket is renamed into place", true, func() (*vswitch.Server, error) {
			s, err := listen(dir + "/.new")
			return s, errors.Join(err, os.Rename(dir+"/.new", socket))
		}},
		{"the directory is removed and created again", false, func() (*vswitch.Server, error) {
			err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755))
			s, listenErr := listen(socket)
			return s, errors.Join(err, listenErr)
		}},
		{"another directory is renamed into place", false, func() (*vswitch.Server, error) {
			err := os.Mkdir("/run/vsw/new", 0o755)
			s, listenErr := listen("/run/vsw/new/vhost.sock")
			return s, errors.Join(err, listenErr, os.Rename(dir, "/run/vsw/old"), os.Rename("/run/vsw/new", dir))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e2e.Each(t, func(t *testing.T, h *e2e.H) {
				h.MkdirAll("/run/vsw")
				h.MkdirAll(dir)
				h.StartPlugin(node.PluginOptions{Config: nodeConfig})
				first := h.Vswitch(vswitch.VhostUser, socket, "the first")
				pod := h.RunPod(node.PodOptions{Namespace: "dpdk-1"})
				devinfo(h, pod, "red", "net1", vhostUser("client", socket))
				ctr := pod.Run(node.ContainerOptions{Mounts: []*cri.Mount{
					{HostPath: socket, ContainerPath: "/plain/file.sock"},
					{HostPath: dir, ContainerPath: "/plain/directory", Readonly: true}}})
				ways := map[string]string{"file": "/plain/file.sock", "directory": "/plain/directory/vhost.sock",
					"jackfield": "/var/run/jackfield/net/net1/vhost.sock", "jackfield, own path": socket}
				for way, path := range ways {
					if out, errs, code := ctr.Exec("sockclient", "connect", path); code != 0 || strings.TrimSpace(out) != vswitch.Greeting("the first") {
						t.Fatalf("before the restart the %s has %q, %s", way, out, errs)
					}
				}
				if err := first.Crash(); err != nil {
					t.Fatal(err)
				}
				second, err := tc.restart()
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { second.Close() })
				again := vswitch.Greeting("again")
				for _, way := range []string{"jackfield", "jackfield, own path"} {
					h.Eventually(func() error {
						if out, errs, _ := ctr.Exec("sockclient", "connect", ways[way]); strings.TrimSpace(out) != again {
							return fmt.Errorf("after the restart the container reads %q from %s: %s", out, ways[way], errs)
						}
						return nil
					})
				}
				// By now, every socket that appears without Jackfield has appeared.
				result := []string{"jackfield: answers"}
				for way, want := range map[string]bool{"file": false, "directory": tc.directory} {
					out, errs, _ := ctr.Exec("sockclient", "connect", ways[way])
					if answers := strings.TrimSpace(out) == again; answers != want {
						t.Errorf("after the restart a bind mount of the %s has %q, %s", way, out, errs)
					}
					result = append(result, fmt.Sprintf("bind of the %s: %s", way, strings.TrimSpace(out+errs)))
				}
				t.Logf("%s: %s", h.Generation(), strings.Join(result, "; "))
			})
		})
	}
}
