// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/vswitch"
)

// An application that does not run as root creates its socket in the directory that jackfield-cni
// created for root. No other user can.
func TestTheApplicationIsNotRoot(t *testing.T) {
	for _, network := range networks[:2] {
		t.Run(network.name, func(t *testing.T) {
			e2e.EachFresh(t, node.Options{CNI: network.conf}, func(t *testing.T, h *e2e.H) {
				t.Cleanup(func() { cleanUp(t) })
				// NRI 0.11 and later reports the user of each container.
				told, config := slices.Contains(node.WithNRI011(), h.Generation()), "sockets: {user: \"1000:1001\"}\n"
				if told {
					config = ""
				}
				h.StartPlugin(node.PluginOptions{Config: config + nriConfig})
				pod := h.RunPod(node.PodOptions{Namespace: "dpdk-1"})
				_, socket := created(t, pod)
				ctr := pod.Run(node.ContainerOptions{Name: "user", User: 1000, Group: 1001})
				listen := "sockclient listen $JACKFIELD_ETH0_SOCKET 'from inside' 1"
				others, options, try := pod, node.ContainerOptions{Name: "other", User: 2000, Group: 2001}, listen
				if told {
					// A pod without a grant sees the directory.
					others, try = h.RunPod(node.PodOptions{Name: "others", Namespace: "web"}), "sockclient listen /mnt/app.sock 'from inside' 1"
					options.Mounts = []*cri.Mount{{HostPath: filepath.Dir(socket), ContainerPath: "/mnt"}}
				}
				other := others.Run(options)
				if out, errs, code := other.Exec("sh", "-c", try); code == 0 || !strings.Contains(errs, "permission denied") {
					t.Errorf("another user: status %d, %q %q, want permission denied", code, out, errs)
				}
				ctr.Output("sh", "-c", listen+" >/dev/null 2>&1 &")
				h.Eventually(func() error {
					got, err := vswitch.Ask(t.Context(), socket)
					if err == nil && got != "from inside" {
						err = fmt.Errorf("the application's socket gave %q", got)
					}
					return err
				})
				pod.Remove()
				if told {
					others.Remove()
				}
				nothingLeft(t, h)
			})
		})
	}
}
