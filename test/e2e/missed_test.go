// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/jackfield/jackfield/internal/report/status"
	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
)

// reportedMissed waits until jackfield status lists exactly these containers as missed.
func reportedMissed(t *testing.T, h *e2e.H, p *e2e.Plugin, want ...*e2e.Container) {
	t.Helper()
	var ids []string
	for _, c := range want {
		ids = append(ids, c.ID)
	}
	slices.Sort(ids)
	h.Eventually(func() error {
		out, err := h.Command("jackfield", "status", "-o", "json", "--config", p.ConfigFile).Output()
		if err != nil {
			return err
		}
		var n status.Node
		if err := json.Unmarshal(out, &n); err != nil {
			return err
		}
		var found []string
		for _, c := range n.Missed {
			found = append(found, c.ContainerID)
		}
		slices.Sort(found)
		if !n.Registered || !slices.Equal(found, ids) {
			return fmt.Errorf("missed containers are %q, want %q: %s", found, ids, out)
		}
		return nil
	})
}

// containerd is killed, and a container is created while the plugin is down. The plugin reports the container
// when it is back, and with "missed: evict" it stops the container. A container that has its devices is
// neither reported nor stopped, whichever process was restarted.
func TestMissedContainersOnRealRuntime(t *testing.T) {
	e2e.EachFresh(t, node.Options{}, func(t *testing.T, h *e2e.H) {
		h.CharDevice("/run/devs/zero", 1, 5)
		h.WriteFile("/etc/cdi/vendor.json", `{"cdiVersion":"0.6.0","kind":"vendor.com/net","devices":[{"name":"a","containerEdits":
			{"env":["A=1"],"deviceNodes":[{"path":"/dev/vendor-a","hostPath":"/run/devs/zero"}]}}]}`)
		p := h.StartPlugin(node.PluginOptions{Config: nodeConfig})
		given := h.RunPod(node.PodOptions{Name: "given", Namespace: "dpdk-1", Annotations: asks}).Run(node.ContainerOptions{})
		checkInjected(t, given)
		reportedMissed(t, h, p)

		p.Kill()
		h.KillRuntime()
		pod := h.RunPod(node.PodOptions{Name: "missed", Namespace: "dpdk-1", Annotations: asks})
		lacks := pod.Run(node.ContainerOptions{})
		if got := lacks.Output("sh", "-c", "echo [$A]"); got != "[]" {
			t.Fatalf("without the plugin A is %q", got)
		}
		h.RunPod(node.PodOptions{Name: "plain", Namespace: "dpdk-1"}).Run(node.ContainerOptions{}).Output("true")
		from := len(p.Log())
		p.Restart()
		reportedMissed(t, h, p, lacks)
		p.WaitLog(from, "runs without what it requested")
		found, _ := runDoctor(t, h, "--config", p.ConfigFile)
		expectFinding(t, found, "missed", "warning", "dpdk-1/missed/main")
		// The plugin is up: a restart of containerd changes nothing.
		h.RestartRuntime()
		h.WaitPlugin("10-jackfield")
		reportedMissed(t, h, p, lacks)

		p.Kill()
		config := nodeConfig + "missed: evict\nruntime: {socket: " + h.Socket() + "}\n"
		if err := os.WriteFile(p.ConfigFile, []byte(config), 0o644); err != nil {
			t.Fatal(err)
		}
		// The plugin recognises an injected container without its record, too.
		if err := os.RemoveAll("/run/jackfield/status"); err != nil {
			t.Fatal(err)
		}
		p.Restart()
		h.Eventually(func() error {
			st, err := lacks.Status(t.Context())
			if err != nil {
				return err
			}
			if st.GetState() != cri.ContainerState_CONTAINER_EXITED || st.GetExitCode() != 137 {
				return fmt.Errorf("the container is %v with exit code %d, want one that was killed", st.GetState(), st.GetExitCode())
			}
			return nil
		})
		reportedMissed(t, h, p)
		checkInjected(t, given) // it is still running
		// The kubelet creates it again.
		lacks.Remove()
		checkInjected(t, pod.Run(node.ContainerOptions{Attempt: 1}))
	})
}
