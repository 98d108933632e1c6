// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/test/kubelet"
	"github.com/jackfield/jackfield/test/vswitch"
)

// podAnnotations returns the annotations that containerd writes into the OCI configuration of a pod's
// container, and a request for the resource that the pod was allocated.
func podAnnotations(namespace string) map[string]string {
	return map[string]string{
		"io.kubernetes.cri.sandbox-id": "sandbox-1", "io.kubernetes.cri.container-type": "container", "io.kubernetes.cri.sandbox-namespace": namespace,
		"io.kubernetes.cri.sandbox-name": "pod", "io.kubernetes.cri.sandbox-uid": "uid-1", "io.kubernetes.cri.container-name": "app",
		"devices.jackfield.dev": "resource:vendor.example.com/port",
	}
}

// `jackfield oci-hook` runs for a container of a pod and queries the kubelet for the allocated devices. It
// injects these devices into this pod and no other. If the kubelet is unresponsive, the container does not
// start.
func TestPodGetsDevicesThatKubeletAllocated(t *testing.T) {
	eachRuntimeAndStage(t, func(t *testing.T, h *host, runtime, stage string) {
		if _, err := h.common.Command("jackfield"); err != nil {
			t.Fatal(err)
		}
		k, err := kubelet.Start(h.path("kubelet/kubelet.sock"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(k.Stop)
		k.SetPods(kubelet.Pod("ns", "pod", kubelet.Container("app", kubelet.Device("vendor.example.com/port", "port-7", "port-8"))),
			kubelet.Pod("other", "pod", kubelet.Container("app")))
		h.configure(`    - {name: pods, for: {namespaces: [ns, other]}, allow: {sockets: ["` + h.path("sock") + `/**"]}}
kubelet: {podResourcesSocket: ` + k.Socket() + `}
`)
		h.write("config.yaml", strings.Replace(h.read("config.yaml"), "deviceInfo: {", "deviceInfo: {dpDir: "+h.path("dp")+", ", 1))
		// The device plugin's device-info of its ports, and another network.
		h.socket("sandbox-1")
		h.mkdir("sock/port8")
		other, err := vswitch.Listen(vswitch.VhostUser, h.path("sock/port8/vhost.sock"), vswitch.Greeting("another"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { other.Close() })
		info := h.read("devinfo/ns-fast-sandbox-1_net1")
		h.write("dp/vendor.example.com-port-port-7-device.json", info)
		h.write("dp/vendor.example.com-port-port-8-device.json", strings.Replace(info, "port0", "port8", 1))
		out, err := h.run(runtime, container{stages: []string{stage}, annotations: podAnnotations("ns"),
			command: "for of in net1 vendor.example.com-port-port-7 vendor.example.com-port-port-8; do sockclient connect /var/run/jackfield/net/$of/vhost.sock; done; cat /var/run/jackfield/devices.json"})
		h.checkPrinted(out, err, "hello from vswitch\nhello from vswitch\nhello from another\n", `"device-id": "port-7"`, `"device-id": "port-8"`)
		if calls := k.Calls(); calls.Get+calls.List == 0 {
			t.Error("the kubelet was not queried")
		}
		out, err = h.run(runtime, container{stages: []string{stage}, annotations: podAnnotations("other"), command: "echo started"})
		checkRefused(t, out, err, "vendor.example.com/port")
		k.Stop()
		out, err = h.run(runtime, container{stages: []string{stage}, annotations: podAnnotations("ns"), command: "echo started"})
		checkRefused(t, out, err, "kubelet")
		// Without jackfield beside it, the hook refuses the container before it checks anything.
		h.mkdir("alone")
		h.copyProgram(h.hookCommand(), h.path("alone/jackfield-hook"), 0o755)
		h.hook = h.path("alone/jackfield-hook")
		out, err = h.run(runtime, container{stages: []string{stage}, annotations: podAnnotations("ns"), command: "echo started"})
		checkRefused(t, out, err, "which must be installed beside jackfield-hook")
		if _, err := os.Stat(filepath.Join(filepath.Dir(h.hook), "jackfield")); err == nil {
			t.Error("jackfield exists beside jackfield-hook")
		}
	})
}
