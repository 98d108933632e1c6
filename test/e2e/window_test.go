// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"testing"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
)

// While the plugin is down, a container that requests a device starts without it, even if it requires
// the plugin: these runtimes, NRI 0.6 and 0.8, have no required plugins. docs/how-to/require-the-plugin.md documents
// this.
func TestContainerStartsUninjectedWithoutPlugin(t *testing.T) {
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
