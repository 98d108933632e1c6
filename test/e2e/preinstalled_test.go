// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/vswitch"
)

// A plugin that the runtime starts is registered, and after a restart of the runtime, which restarts the
// plugin, it serves the containers of before. containerd 1.7.24 reports none of them.
func TestRuntimeRestartsPlugin(t *testing.T) {
	bin, err := e2e.Kit(t).Command("jackfield-nri")
	if err != nil {
		t.Fatal(err)
	}
	const socket = "/run/vsw/port1/vhost.sock"
	plugins := []node.Preinstalled{{Name: "10-jackfield", Binary: bin, Config: nodeConfig}}
	e2e.EachFresh(t, node.Options{Plugins: plugins}, func(t *testing.T, h *e2e.H) {
		registered := func() {
			t.Helper()
			h.Eventually(func() error {
				out, err := h.Command("jackfield", "status").CombinedOutput()
				if err != nil || !strings.Contains(string(out), "registered with c") { // containerd or cri-o
					return fmt.Errorf("jackfield status: %v: %s", err, out)
				}
				return nil
			})
		}
		registered()
		h.MkdirAll("/run/vsw/port1")
		first := h.Vswitch(vswitch.VhostUser, socket, "before")
		pod := h.RunPod(node.PodOptions{Namespace: "dpdk-1"})
		devinfo(h, pod, "red", "net1", vhostUser("client", socket))
		ctr := pod.Run(node.ContainerOptions{Name: "app"})
		h.RestartRuntime()
		registered()
		h.Eventually(func() error {
			out, err := h.Command("jackfield", "sockets").CombinedOutput()
			if err != nil || !strings.Contains(string(out), socket) {
				return fmt.Errorf("jackfield sockets: %v: %s", err, out)
			}
			return nil
		})
		if out, _ := h.Command("jackfield", "status").CombinedOutput(); !strings.Contains(string(out), "app") {
			t.Errorf("the container is not in the status after the restart:\n%s", out)
		}
		if err := first.Crash(); err != nil {
			t.Fatal(err)
		}
		h.Vswitch(vswitch.VhostUser, socket, "after")
		h.Eventually(func() error {
			if out, errs, _ := ctr.Exec("sockclient", "connect", socket); strings.TrimSpace(out) != vswitch.Greeting("after") {
				return fmt.Errorf("the container reads %q: %s", out, errs)
			}
			return nil
		})
		staged := "/run/jackfield/containers/" + ctr.ID
		if _, err := os.Stat(staged); err != nil {
			t.Fatal(err)
		}
		pod.Remove()
		old := time.Now().Add(-time.Hour)
		if err := os.Chtimes("/run/jackfield/sandboxes/"+pod.ID, old, old); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		h.RestartRuntime()
		h.Eventually(func() error {
			if _, err := os.Stat(staged); !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("the staging directory of the removed pod: %w", errors.Join(err, os.ErrExist))
			}
			return nil
		})
	})
}
