// SPDX-License-Identifier: Apache-2.0

package kit_test

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/kit"
	"github.com/jackfield/jackfield/test/vswitch"
)

const (
	config = `
sockets:
  user: "1000:1000"
  roots: [/run/vsw]
  named:
    db: {path: /run/db/db.sock}
policy:
  rules:
    - name: tenants
      for: {namespaces: [apps]}
      allow: {namedSockets: [db], sockets: ["/run/vsw/**"]}
`
	portSocket = "/run/vsw/port/sock"
	// read is what the sample programs print in the container of runPod.
	read = `name=socket:db interface= type= socket=/var/run/jackfield/named/db/db.sock pci= created-by=host
name=apps/fast interface=net1 type=vhost-user socket=/var/run/jackfield/net/net1/sock pci= created-by=host
EAL argument --vdev=net_virtio_user0,path=/var/run/jackfield/net/net1/sock
EAL argument --no-pci`
)

// runPod runs a pod with a port of a vswitch and a named socket, and the servers of both.
func runPod(h *e2e.H) *e2e.Pod {
	h.Vswitch(vswitch.VhostUser, "/run/db/db.sock", "db")
	return runPodWithoutDatabase(h)
}

// runPodWithoutDatabase is runPod without a server of the named socket.
func runPodWithoutDatabase(h *e2e.H) *e2e.Pod {
	h.Vswitch(vswitch.VhostUser, portSocket, "port")
	pod := h.RunPod(node.PodOptions{Namespace: "apps", Annotations: map[string]string{"devices.jackfield.dev": "socket:db", "k8s.v1.cni.cncf.io/networks": "fast"}})
	h.WriteFile(fmt.Sprintf("/run/k8s.cni.cncf.io/devinfo/cni/apps-fast-%s_net1", pod.ID),
		`{"type": "vhost-user", "version": "1.1.0", "vhost-user": {"mode": "client", "path": "`+portSocket+`"}}`)
	return pod
}

// layPython returns mounts with Python for a container of any image.
func layPython(t *testing.T, packages []string) (mounts []*cri.Mount) {
	t.Helper()
	tree := t.TempDir()
	for _, p := range packages {
		if out, err := exec.CommandContext(t.Context(), "cp", "-a", p+"/.", tree).CombinedOutput(); err != nil {
			t.Fatalf("lay out Python: %v\n%s", err, out)
		}
	}
	for _, dir := range []string{"usr", "lib", "lib64"} {
		if _, err := os.Stat(tree + "/" + dir); err == nil {
			mounts = append(mounts, &cri.Mount{HostPath: tree + "/" + dir, ContainerPath: "/" + dir, Readonly: true})
		}
	}
	return mounts
}

// The sample programs of the documentation read the file of a real container, each in its language.
func TestReadersInContainer(t *testing.T) {
	p := readPrograms(t)
	commands := map[string][]string{"go": {"/samples/go"}, "python": {"/usr/bin/python3.11", "/samples/sample.py"}}
	if kit.HasGCC() {
		commands["c"] = []string{"/samples/c"}
	} else if os.Getenv("CI") == "true" {
		t.Error("no gcc, and CI promises that there is")
	} else {
		t.Log("C is not tested: no gcc")
	}
	e2e.EachShipped(t, func(t *testing.T, h *e2e.H) {
		h.StartPlugin(node.PluginOptions{Config: config})
		pod := runPod(h)
		mounts := append(layPython(t, p.Python), &cri.Mount{HostPath: p.Samples, ContainerPath: "/samples", Readonly: true})
		ctr := pod.Run(node.ContainerOptions{Mounts: mounts})
		for language, command := range commands {
			if got := ctr.Output(command...); got != read {
				t.Errorf("%s prints\n%s\nwant\n%s", language, got, read)
			}
		}
	})
}
