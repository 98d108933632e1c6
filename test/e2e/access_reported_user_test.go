// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"os"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/vswitch"
)

// The runtime reports the user of each container (NRI 0.11), so the configuration names no user. The user of
// each container can use the pod's sockets and owns the container's device nodes. A container without a grant
// cannot use a socket that it can see.
func TestRuntimeReportsContainerUser(t *testing.T) {
	for _, access := range []string{"acl", "group", "owner"} {
		t.Run(access, func(t *testing.T) {
			e2e.EachWithNRI011(t, func(t *testing.T, h *e2e.H) { checkReportedUser(t, h, access) })
		})
	}
}

// checkReportedUser runs the test on a node whose configuration has access as sockets.access.
func checkReportedUser(t *testing.T, h *e2e.H, access string) {
	h.MkdirAll("/run/vsw")
	h.StartPlugin(node.PluginOptions{Config: strings.Replace(nodeConfig, "sockets: {", "sockets: {access: "+access+", ", 1)})
	const path = "/run/vsw/port1/vhost.sock"
	start := func(name string, mode os.FileMode) *vswitch.Server { return vhostUserAt(t, h, path, name, mode) }
	s := start("one", 0o755)
	h.CharDevice("/run/devs/zero", 1, 5)
	h.WriteFile("/etc/cdi/vendor.json", `{"cdiVersion": "0.6.0", "kind": "vendor.com/net", "devices": [{"name": "dev0", "containerEdits": {
  "deviceNodes": [{"path": "/dev/vendor0", "hostPath": "/run/devs/zero", "fileMode": 384}]}}]}`)
	pod := h.RunPod(node.PodOptions{Name: "users", Namespace: "dpdk-1", Annotations: map[string]string{"devices.jackfield.dev/container.user": "vendor.com/net=dev0"}})
	// The mode and owner that jackfield-cni sets, for root.
	appDir := "/run/vsw/" + pod.ID[:12] + "-0011aabbccdd-net2"
	createAsCNI(t, h, pod, appDir)
	devinfo(h, pod, "red", "net1", vhostUser("client", "/var"+path))
	devinfo(h, pod, "blue", "net2", vhostUser("server", "/var"+appDir+"/app.sock"))
	devinfo(h, pod, "pink", "net3", vhostUser("server", "/var/run/vsw/made/app.sock"))
	ctr := pod.Run(node.ContainerOptions{Name: "user", User: 1000, Group: 1001})
	strange := h.RunPod(node.PodOptions{Name: "strange", Namespace: "web"}).Run(node.ContainerOptions{User: 2000, Group: 2001,
		Mounts: []*cri.Mount{{HostPath: "/run/vsw", ContainerPath: "/run/vsw"}}})
	denied := func() {
		t.Helper()
		if out, errs, code := strange.Exec("sockclient", "connect", path); code == 0 || !strings.Contains(errs, "permission denied") {
			t.Errorf("another user: status %d, %q %q, want permission denied", code, out, errs)
		}
	}
	works := func(name string) {
		t.Helper()
		eventually(h, ctr, vswitch.Greeting(name), "sockclient connect $JACKFIELD_NET1_SOCKET")
		denied()
	}
	works("one")
	if err := s.Crash(); err != nil {
		t.Fatal(err)
	}
	start("two", 0o600)
	works("two")
	if got := ctr.Output("sh", "-c", "stat -c %u:%g:%a /dev/vendor0; head -c 2 /dev/vendor0 | xxd -p"); got != "1000:1001:600\n0000" {
		t.Errorf("the device node is %q", got)
	}
	for _, c := range []struct{ variable, onHost string }{{"$JACKFIELD_NET2_SOCKET", appDir}, {"$JACKFIELD_NET3_SOCKET", "/run/vsw/made"}} {
		if out, errs, code := strange.Exec("sockclient", "listen", c.onHost+"/app.sock", "x", "1"); code == 0 || !strings.Contains(errs, "permission denied") {
			t.Errorf("another user in %s: status %d, %q %q, want permission denied", c.onHost, code, out, errs)
		}
		fromInside(t, h, ctr, c.variable, c.onHost+"/app.sock")
	}
	closedToOthers(t, path)
	if access != "acl" {
		return // a socket has one group and one owner, those of the last container
	}
	// A second container of the pod is a second user of the pod's sockets.
	second := pod.Run(node.ContainerOptions{Name: "second", User: 3000, Group: 3001})
	eventually(h, second, vswitch.Greeting("two"), "sockclient connect $JACKFIELD_NET1_SOCKET")
	works("two")
}
