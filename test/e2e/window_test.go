// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"testing"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
)

// What happens while the plugin is down. These runtimes, NRI 0.6 and 0.8, know
// no required plugins: a container that asks for a device, and says that it needs the
// plugin, comes up without. docs/security.md says so.
func TestTheWindowWithoutThePlugin(t *testing.T) {
	e2e.EachShipped(t, func(t *testing.T, h *e2e.H) {
		h.WriteFile("/etc/cdi/vendor.json", `{"cdiVersion":"0.6.0","kind":"vendor.com/net","devices":[{"name":"a","containerEdits":{"env":["A=1"]}}]}`)
		pod := h.RunPod(node.PodOptions{Namespace: "dpdk-1", Annotations: map[string]string{
			"devices.jackfield.dev": "vendor.com/net=a", "required-plugins.noderesource.dev": "[jackfield]"}})
		if got := pod.Run(node.ContainerOptions{Name: "before"}).Output("sh", "-c", "echo [$A]"); got != "[]" {
			t.Errorf("without the plugin A is %q", got)
		}
		h.StartPlugin(node.PluginOptions{Config: nodeConfig})
		if got := pod.Run(node.ContainerOptions{Name: "after"}).Output("sh", "-c", "echo [$A]"); got != "[1]" {
			t.Errorf("with the plugin A is %q", got)
		}
	})
}
