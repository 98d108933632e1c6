// SPDX-License-Identifier: Apache-2.0

package install

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
)

// The components' init containers copy programs out of the image. These programs run on the node.
func TestCopiedProgramsRunOnNode(t *testing.T) {
	e2e.EachFresh(t, node.Options{}, func(t *testing.T, h *e2e.H) {
		if err := h.ImportImages(t.Context(), os.Getenv(imageEnv), ImageName); err != nil {
			t.Fatal(err)
		}
		pod := h.RunPod(node.PodOptions{Name: "init", Namespace: "jackfield-system"})
		for _, name := range []string{"cni", "hook"} {
			file := filepath.Join(os.Getenv(checkoutEnv), "deploy/kustomize/components/host-"+name+"/daemonset.yaml")
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var ds struct {
				Spec struct {
					Template struct {
						Spec struct{ InitContainers []container }
					}
				}
			}
			if err := yaml.Unmarshal(data, &ds); err != nil || len(ds.Spec.Template.Spec.InitContainers) != 1 {
				t.Fatalf("%s: %v", file, err)
			}
			c := ds.Spec.Template.Spec.InitContainers[0]
			dir := h.Dir() + "/bin-" + name
			h.MkdirAll(dir)
			ctr := pod.Run(node.ContainerOptions{
				Name: c.Name, Image: c.Image, Command: c.Command, ReadonlyRootfs: c.SecurityContext.ReadOnlyRootFilesystem,
				Capabilities: &cri.Capability{DropCapabilities: c.SecurityContext.Capabilities.Drop},
				Mounts:       []*cri.Mount{{HostPath: dir, ContainerPath: c.VolumeMounts[0].MountPath}},
			})
			h.Eventually(func() error {
				st, err := ctr.Status(t.Context())
				if err == nil && st.GetState() != cri.ContainerState_CONTAINER_EXITED {
					err = fmt.Errorf("it is %v", st.GetState())
				}
				if err == nil && st.GetExitCode() != 0 {
					t.Fatalf("%s ended with %d:\n%s", c.Name, st.GetExitCode(), ctr.Logs())
				}
				return err
			})
			program := filepath.Join(dir, "jackfield-"+name)
			st, err := os.Stat(program)
			if err != nil || st.Mode() != 0o755 {
				t.Fatalf("%s: %v, %v", program, st, err)
			}
			cmd := h.Command(program)
			if name == "cni" {
				cmd.Env = []string{"CNI_COMMAND=VERSION"}
			} else {
				cmd.Args = append(cmd.Args, "--version")
			}
			out, err := cmd.CombinedOutput()
			if want := map[string]string{"cni": `"supportedVersions"`, "hook": "go1"}[name]; err != nil || !strings.Contains(string(out), want) {
				t.Errorf("%s on the node: %v, %s", program, err, out)
			}
		}
	})
}
