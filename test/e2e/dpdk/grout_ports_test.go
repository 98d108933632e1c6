// SPDX-License-Identifier: Apache-2.0

package dpdk_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/dpdk"
	"github.com/jackfield/jackfield/test/e2e/grout"
	"github.com/jackfield/jackfield/test/e2e/node"
)

// The CNI plugin creates the ports of two pods on grout, and packets go from one to the other. grout is killed and
// started again, and the NRI plugin creates the ports again while the pods run on. containerd and the plugin are
// restarted while grout is down.
func TestGroutPortsOfPods(t *testing.T) {
	for _, tc := range []struct {
		name, device string
		again        [][2]string // commands for the running testpmd after the restart
	}{
		// An application that creates the socket does nothing.
		{name: "vhost-user that the application creates", device: `{"type": "vhost-user", "mode": "server"}`},
		{name: "memif that grout creates", device: `{"type": "memif", "role": "slave"}`,
			again: [][2]string{{"port stop 0", "Done"}, {"port start 0", "Done"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			network := `{"cniVersion": "1.0.0", "name": "fast", "plugins": [{"type": "jackfield-cni", "vswitch": "grout0", "device": ` + tc.device + `,
				"ipam": {"type": "host-local", "dataDir": "/run/cni-ipam", "ranges": [[{"subnet": "10.89.0.0/16"}]]}}]}`
			e2e.EachFresh(t, node.Options{CNI: network}, func(t *testing.T, h *e2e.H) {
				tree := dpdk.Lay(t)
				t.Cleanup(func() {
					if err := errors.Join(os.RemoveAll("/run/k8s.cni.cncf.io"), os.RemoveAll("/run/cni-ipam")); err != nil {
						t.Errorf("clean up: %v", err)
					}
				})
				s := grout.Start(t, t.TempDir())
				s.Run("interface", "add", "bridge", "br0")
				config := fmt.Sprintf(`
vswitches:
  - {name: grout0, type: grout, endpoint: %q, grcli: %q, bridges: [br0], defaults: {bridge: br0}}
policy:
  rules:
    - name: dpdk-ports
      for:   {namespaces: ["dpdk-*"]}
      allow: {ports: ["grout0/br0"], sockets: ["/var/run/jackfield/sockets/**"]}
`, s.Socket, s.Grcli)
				h.WriteFile("/etc/jackfield/config.yaml", config)
				p := h.StartPlugin(node.PluginOptions{Config: config})
				var pods []*e2e.Pod
				var apps []*prompt
				for _, name := range []string{"a", "b"} {
					pod := h.RunPod(node.PodOptions{Name: name, Namespace: "dpdk-1"})
					pods = append(pods, pod)
					apps = append(apps, runPrompt(t, h, pod, tree, "--no-pci $JACKFIELD_ETH0_EAL"))
				}
				for _, app := range apps {
					app.ready()
				}
				before := s.Ports()
				if len(before) != 2 {
					t.Fatalf("grout has the ports %q, want one for each pod", before)
				}
				exchange := func(when string) {
					t.Helper()
					for _, name := range before {
						h.Eventually(func() error {
							if i, _ := s.Interface(name); !slices.Contains(i.Flags, "running") {
								return fmt.Errorf("%s: grout's port has no link: %+v", when, i)
							}
							return nil
						})
					}
					// On a busy machine the switch, which polls, may get no CPU in that time.
					for end := time.Now().Add(2 * time.Minute); ; {
						apps[1].command("start", "packets/burst")
						apps[0].command("start tx_first", "packets/burst")
						time.Sleep(running)
						b, a := apps[1].stop(), apps[0].stop()
						t.Logf("%s, %s: pod a %v; pod b %v", h.Generation(), when, a, b)
						if min(a.RX, a.TX, b.RX, b.TX) > 0 {
							return
						}
						if time.Now().After(end) {
							t.Fatalf("%s there are no packets: pod a %v; pod b %v", when, a, b)
						}
					}
				}
				exchange("before")

				s.Kill()
				for _, app := range apps {
					app.waitLinkDown()
				}
				p.Kill()
				h.KillRuntime()
				mark := len(p.Log())
				p.Restart()
				s.Restart()
				began := time.Now()
				// grout's startup file runs after its API answers.
				s.Run("interface", "add", "bridge", "br0")
				h.Eventually(func() error {
					after := s.Ports()
					slices.Sort(after)
					slices.Sort(before)
					if !slices.Equal(after, before) {
						return fmt.Errorf("grout has the ports %q after its restart, want %q", after, before)
					}
					return nil
				})
				t.Logf("%s: both ports are back after %v", h.Generation(), time.Since(began).Round(time.Millisecond))
				p.WaitLog(mark, "re-created them")
				if len(tc.again) > 0 {
					p.WaitLog(mark, "re-created the socket")
				}
				for _, app := range apps {
					for _, c := range tc.again {
						app.command(c[0], c[1])
					}
				}
				exchange("after a crash of grout")

				for _, pod := range pods {
					pod.Remove()
				}
				if left := s.Ports(); len(left) != 0 {
					t.Errorf("grout has the ports %q when the pods are gone", left)
				}
			})
		})
	}
}
