// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"os"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/internal/deliver/sockdir"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/vswitch"
)

// portsConfig configures a node on which the tenants' ports share one directory.
const portsConfig = `
sockets: {roots: [/run/vsw]}
policy:
  rules:
    - {name: tenant-a, for: {namespaces: [dpdk-a]}, allow: {sockets: ["/run/vsw/ports/a-*", "/run/vsw/ports/b-*/**", "/run/vsw/ports/vswitch.conf/**"]}}
    - {name: tenant-b, for: {namespaces: [dpdk-b]}, allow: {sockets: ["/run/vsw/ports/b-*"]}}
    - {name: nobody, for: {namespaces: ["*"]}, deny: {sockets: ["/run/vsw/ports/secret/**"]}}
`

// createAsCNI creates a directory for a pod as jackfield-cni does.
func createAsCNI(t *testing.T, h *e2e.H, pod *e2e.Pod, dir string) {
	t.Helper()
	h.MkdirAll(dir)
	dirs := sockdir.New(hostfs.Host(), sockdir.ClaimsDir("/run/jackfield"))
	holder := sockdir.Holder{Sandbox: pod.ID, Adapter: sockdir.NRI, StateDir: "/var/run/jackfield"}
	if _, err := dirs.Claim(dir, holder, true); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := dirs.Limit(dir, int(f.Fd()), holder, 0); err != nil {
		t.Fatal(err)
	}
}

// A tenant has a socket of its own in a directory that all ports share. In every staging mode, and for both
// sides that can create the socket, the container gets that socket alone and never the directory. A refused
// request changes nothing and holds no claim.
func TestTenantsShareSocketDirectory(t *testing.T) {
	for _, staging := range []string{"mount", "directory"} {
		t.Run(staging, func(t *testing.T) {
			h := e2e.Shared(t, node.V2)
			h.MkdirAll("/run/vsw/ports/secret")
			h.StartPlugin(node.PluginOptions{Config: strings.Replace(portsConfig, "sockets: {", "sockets: {staging: "+staging+", ", 1)})
			h.Vswitch(vswitch.VhostUser, "/run/vsw/ports/b-victim.sock", "victim")
			h.Vswitch(vswitch.VhostUser, "/run/vsw/ports/secret/s.sock", "secret")
			h.Vswitch(vswitch.VhostUser, "/run/vsw/ports/a-own.sock", "own")
			h.WriteFile("/run/vsw/ports/vswitch.conf", "precious")

			for _, path := range []string{"a-evil.sock", "b-victim.sock/x.sock", "vswitch.conf/deeper/x.sock"} {
				evil := h.RunPod(node.PodOptions{Name: "evil", Namespace: "dpdk-a"})
				devinfo(h, evil, "red", "net1", vhostUser("server", "/run/vsw/ports/"+path))
				err := evil.CreateFails(node.ContainerOptions{})
				if path == "a-evil.sock" && !strings.Contains(err.Error(), `/run/vsw/ports/**`) && !strings.Contains(err.Error(), "denied by rule") {
					t.Errorf("%s: %v", path, err)
				}
				evil.Remove()
			}
			for _, left := range []string{"b-victim.sock", "vswitch.conf", "secret/s.sock"} {
				if _, err := os.Lstat("/run/vsw/ports/" + left); err != nil {
					t.Errorf("the directory was removed with the refused pod: %v", err)
				}
			}

			honest := h.RunPod(node.PodOptions{Name: "honest", Namespace: "dpdk-a"})
			devinfo(h, honest, "red", "net1", vhostUser("client", "/run/vsw/ports/a-own.sock"))
			ctr := honest.Run(node.ContainerOptions{})
			for _, at := range []string{"$JACKFIELD_NET1_SOCKET", "/run/vsw/ports/a-own.sock"} {
				eventually(h, ctr, vswitch.Greeting("own"), "sockclient connect "+at)
			}
			for _, dir := range []string{"$(dirname $JACKFIELD_NET1_SOCKET)", "/run/vsw/ports"} {
				if got := ctr.Output("sh", "-c", "ls "+dir); got != "a-own.sock" {
					t.Errorf("in %s are %q", dir, got)
				}
			}
			for _, path := range []string{"b-victim.sock", "secret/s.sock"} {
				if out, _, code := ctr.Exec("sh", "-c", "sockclient connect $(dirname $JACKFIELD_NET1_SOCKET)/"+path); code == 0 {
					t.Errorf("%s answers %q", path, out)
				}
			}

			victim := h.RunPod(node.PodOptions{Name: "victim", Namespace: "dpdk-b"})
			devinfo(h, victim, "red", "net1", vhostUser("client", "/run/vsw/ports/b-victim.sock"))
			eventually(h, victim.Run(node.ContainerOptions{}), vswitch.Greeting("victim"), "sockclient connect $JACKFIELD_NET1_SOCKET")
			honest.Remove()
			victim.Remove()
		})
	}
}
