// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/vswitch"
)

// A pod mounts a volume over the path of a device, library or socket that it requests. Its container gets everything or
// is refused: it never starts with a hidden device.
func TestVolumeHidesNothing(t *testing.T) {
	e2e.Each(t, func(t *testing.T, h *e2e.H) {
		h.MkdirAll("/run/volume")
		h.MkdirAll("/run/vsw")
		h.CharDevice("/run/devs/zero", 1, 5)
		h.WriteFile("/run/vendor/lib/driver.so", "library")
		h.WriteFile("/etc/cdi/vendor.json", `{"cdiVersion": "0.6.0", "kind": "vendor.com/net", "devices": [{"name": "dev0", "containerEdits": {
  "deviceNodes": [{"path": "/dev/vf0", "hostPath": "/run/devs/zero"}],
  "mounts": [{"hostPath": "/run/vendor/lib", "containerPath": "/opt/vendor", "options": ["ro", "rbind"]}]}}]}`)
		h.Vswitch(vswitch.VhostUser, "/run/vsw/port1/vhost.sock", "vhost-user")
		h.StartPlugin(node.PluginOptions{Config: nodeConfig})
		pod := h.RunPod(node.PodOptions{Namespace: "dpdk-1", Annotations: map[string]string{"devices.jackfield.dev": "vendor.com/net=dev0"}})
		devinfo(h, pod, "red", "net1", vhostUser("client", "/run/vsw/port1/vhost.sock"))
		for i, at := range []string{"/dev", "/dev/vf0", "/run", "/var/run", "/var", "/opt", "/opt/vendor", "/var/run/jackfield", "/run/vsw"} {
			source := "/run/volume"
			if at == "/dev" {
				source = at // the volume of storage and DPDK pods
			}
			ctr, err := pod.TryCreate(t.Context(), node.ContainerOptions{Attempt: uint32(i),
				Mounts: []*cri.Mount{{HostPath: source, ContainerPath: at}}})
			if err == nil {
				err = ctr.Start(t.Context())
			}
			if strings.HasPrefix(at, "/dev") && (err == nil || !strings.Contains(err.Error(), `"/dev/vf0"`)) {
				t.Errorf("a volume at %s hides the device node, and the error is %v", at, err)
			}
			if err != nil {
				continue
			}
			const use = "head -c 4 /dev/vf0 | xxd -p; cat /opt/vendor/driver.so; echo; sockclient connect $JACKFIELD_NET1_SOCKET"
			out, stderr, _, err := ctr.Exec(t.Context(), "sh", "-c", use)
			if want := "00000000\nlibrary\n" + vswitch.Greeting("vhost-user") + "\n"; err != nil || out != want {
				t.Errorf("with a volume at %s the container has %q, want %q: %s, %v", at, out, want, stderr, err)
			}
		}
	})
}
