// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/internal/report/status"
	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/vswitch"
)

// A container fails ten times because of another program's hook. At most its last attempt is left on the
// host. The failed attempts are not in the status and count towards no limit. Nothing is left after the pod
// is removed.
func TestFailedCreationsUseNoLimit(t *testing.T) {
	const limited = `
sockets: {roots: [/var/run/vsw]}
policy:
  rules:
    - name: limited
      for:    {namespaces: ["dpdk-*"]}
      allow:  {cdi: ["vendor.com/net=*"], sockets: ["/var/run/vsw/**"]}
      limits: {pod: {cdi: 1}}
`
	entries := func(t *testing.T, dir string) int {
		t.Helper()
		names, err := os.ReadDir(dir)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return len(names)
	}
	mounts := func(t *testing.T) int {
		t.Helper()
		data, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(data), " /run/jackfield/containers/")
	}
	e2e.Each(t, func(t *testing.T, h *e2e.H) {
		h.MkdirAll("/run/vsw")
		p := h.StartPlugin(node.PluginOptions{Config: limited})
		h.Vswitch(vswitch.VhostUser, "/run/vsw/port1/vhost.sock", "vhost-user")
		h.WriteFile("/etc/cdi/vendor.json", `{"cdiVersion": "0.6.0", "kind": "vendor.com/net", "devices": [
 {"name": "good", "containerEdits": {"env": ["GOOD=1"]}},
 {"name": "bad", "containerEdits": {"env": ["BAD=1"], "hooks": [{"hookName": "createRuntime", "path": "/bin/false", "args": ["false"]}]}}]}`)
		listed := func(want int) {
			t.Helper()
			h.Eventually(func() error {
				out, err := h.Command("jackfield", "status", "-o", "json", "--config", p.ConfigFile).Output()
				if err != nil {
					return err
				}
				var n status.Node
				if err := json.Unmarshal(out, &n); err != nil {
					return err
				}
				if len(n.Containers) != want {
					return fmt.Errorf("the status lists %d containers, want %d: %s", len(n.Containers), want, out)
				}
				return nil
			})
		}
		first := h.RunPod(node.PodOptions{Name: "running", Namespace: "dpdk-1"})
		devinfo(h, first, "red", "net1", vhostUser("client", "/var/run/vsw/port1/vhost.sock"))
		running := first.Run(node.ContainerOptions{}) // the plugin learns that it starts
		answers(t, running)
		listed(1)
		h.Eventually(func() error { // its record is written after that
			_, err := os.Stat("/run/jackfield/status/" + running.ID)
			return err
		})
		before := h.Inventory("/run/jackfield")
		staged, mounted := entries(t, "/run/jackfield/containers"), mounts(t)

		pod := h.RunPod(node.PodOptions{Name: "failing", Namespace: "dpdk-1", Annotations: map[string]string{
			"devices.jackfield.dev/container.main": "vendor.com/net=bad", "devices.jackfield.dev/container.other": "vendor.com/net=good"}})
		devinfo(h, pod, "red", "net1", vhostUser("client", "/var/run/vsw/port1/vhost.sock"))
		one := 0 // the mounts of one container
		for i := range 10 {
			// containerd runs the hook at the start, and CRI-O at the creation.
			ctr, err := pod.TryCreate(t.Context(), node.ContainerOptions{Attempt: uint32(i)})
			if i == 0 {
				one = mounts(t) - mounted
			}
			if err == nil {
				err = ctr.Start(t.Context())
			}
			if err == nil || !strings.Contains(err.Error(), "hook") {
				t.Fatalf("the container's hook failed, and the error is %v", err)
			}
		}
		if one <= 0 {
			t.Errorf("a container has %d mounts", one)
		}
		if n := entries(t, "/run/jackfield/containers") - staged; n > 1 {
			t.Errorf("%d staging directories are left, want at most 1", n)
		}
		if records, err := filepath.Glob("/run/jackfield/sandboxes/" + pod.ID + "/*.container"); err != nil || len(records) > 1 {
			t.Errorf("records %q are left, %v, want at most 1", records, err)
		}
		if n := mounts(t) - mounted; n > one {
			t.Errorf("%d mounts are left, want at most the %d of one container", n, one)
		}
		listed(1)
		// Failed attempts do not count towards the pod's limit.
		answers(t, pod.Run(node.ContainerOptions{Name: "other"}))
		listed(2)
		pod.Remove()
		h.NothingLeft(before, "/run/jackfield")
	})
}
