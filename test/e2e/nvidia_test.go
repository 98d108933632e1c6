// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"os"
	"strings"
	"testing"

	nvidia "github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-ctk-installer/container/runtime/nri"
	"github.com/sirupsen/logrus"

	"github.com/jackfield/jackfield/test/compatibility"
	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
)

const (
	// nvidiaPlugin is the name of NVIDIA's NRI plugin: its index is the program's default, and its name the program's.
	nvidiaPlugin = "10-nvidia-ctk-installer"

	// gpuSpec declares what nvidia-ctk declares, and a device of another vendor. The nodes are those of every machine.
	gpuSpec = `{"cdiVersion":"0.6.0","kind":"KIND","devices":[
 {"name":"0","containerEdits":{"env":["GPU_0=KIND"],"deviceNodes":[{"path":"/dev/nvidia0","hostPath":"/dev/zero"}]}},
 {"name":"all","containerEdits":{"env":["GPU_ALL=KIND"],"deviceNodes":[{"path":"/dev/nvidia0","hostPath":"/dev/zero"}]}}]}`
)

// connectNVIDIA runs NVIDIA's NRI plugin until the test ends.
func connectNVIDIA(t *testing.T, h *e2e.H) {
	t.Helper()
	from := len(h.Log())
	log := logrus.New()
	log.SetOutput(t.Output())
	program := os.Args[0]
	os.Args[0] = strings.TrimPrefix(nvidiaPlugin, "10-") // the plugin takes its name from it
	plugin := nvidia.NewPlugin(context.WithoutCancel(t.Context()), log, []string{"gpu-operator"})
	err := plugin.Start(context.WithoutCancel(t.Context()), h.NRISocket(), "10")
	os.Args[0] = program
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(plugin.Stop)
	ctx, cancel := context.WithTimeout(t.Context(), node.Patience)
	defer cancel()
	if err := h.WaitPluginSince(ctx, nvidiaPlugin, from); err != nil {
		t.Fatal(err)
	}
}

// NVIDIA's NRI plugin injects the CDI devices of an annotation into pods of every namespace. With the configuration of
// the how-to, a container is created only if a rule grants them.
func TestPolicyAppliesToNVIDIAPlugin(t *testing.T) {
	e2e.EachFreshWith(t, compatibility.Validate(), node.Options{}, func(t *testing.T, h *e2e.H) {
		for file, kind := range map[string]string{"gpu": "nvidia.com/gpu", "management": "management.nvidia.com/gpu",
			"nic": "vendor.com/nic"} {
			h.WriteFile("/etc/cdi/"+file+".json", strings.ReplaceAll(gpuSpec, "KIND", kind))
		}
		h.StartPlugin(node.PluginOptions{Config: policeConfig(t)})
		connectNVIDIA(t, h)
		for _, tc := range []struct {
			name, namespace, key, devices string
			env                           string // in the container; "" if it is refused
		}{
			{"granted", "ml", "nvidia.cdi.k8s.io/container.main", "nvidia.com/gpu=0", "GPU_0=nvidia.com/gpu"},
			{"no-rule", "web", "nvidia.cdi.k8s.io", "nvidia.com/gpu=0", ""},
			{"all-gpus", "ml", "nvidia.cdi.k8s.io/pod", "nvidia.com/gpu=all", ""},
			{"other-vendor", "ml", "nvidia.cdi.k8s.io", "vendor.com/nic=0", ""},
			{"one-of-two", "ml", "nvidia.cdi.k8s.io", "nvidia.com/gpu=0,vendor.com/nic=all", ""},
			{"operator", "gpu-operator", "nvidia.cdi.k8s.io", "management.nvidia.com/gpu=all", "GPU_ALL=management.nvidia.com/gpu"},
			{"no-request", "web", "example.com/x", "y", "PATH="},
		} {
			pod := h.RunPod(node.PodOptions{Name: tc.name, Namespace: tc.namespace,
				Annotations: map[string]string{tc.key: tc.devices}})
			if tc.env != "" {
				ctr := pod.Run(node.ContainerOptions{})
				if env := ctr.Output("env"); !strings.Contains(env, tc.env) {
					t.Errorf("%s: no variable %s: %s", tc.name, tc.env, env)
				}
				continue
			}
			denied := tc.devices[strings.LastIndex(tc.devices, ",")+1:]
			err := pod.CreateFails(node.ContainerOptions{})
			for _, want := range []string{`injected by NRI plugin "` + nvidiaPlugin + `"`, `"` + denied + `"`,
				tc.namespace + "/" + tc.name + "/main"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: the refusal does not contain %s: %v", tc.name, want, err)
				}
			}
		}
	})
}

// policeConfig returns the configuration of the how-to.
func policeConfig(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/how-to/police-the-nvidia-nri-plugin.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```yaml\n")
	config, _, found := strings.Cut(rest, "```")
	if !found || !strings.Contains(config, "validate:") {
		t.Fatal("the page has no configuration")
	}
	return config
}
