// SPDX-License-Identifier: Apache-2.0

package kit_test

import (
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/vswitch"
)

// The launcher is a container's first process. It waits for a server of the host that starts later, and the program
// takes its place, with the arguments and the environment of the container's devices.
func TestLauncherInContainer(t *testing.T) {
	readPrograms(t)
	e2e.EachShipped(t, func(t *testing.T, h *e2e.H) {
		launcher, err := h.Kit().Command("jackfield-run")
		if err != nil {
			t.Fatal(err)
		}
		h.StartPlugin(node.PluginOptions{Config: strings.Replace(config, "db.sock}", "db.sock, create: wait}", 1)})
		h.MkdirAll("/run/db")
		pod := runPodWithoutDatabase(h)
		mounts := []*cri.Mount{{HostPath: launcher, ContainerPath: "/jackfield-run", Readonly: true}}
		ctr := pod.Run(node.ContainerOptions{Name: "app", Mounts: mounts, User: 1000, Group: 1000, ReadonlyRootfs: true,
			Capabilities: &cri.Capability{DropCapabilities: []string{"ALL"}},
			Command: []string{"/jackfield-run", "--wait", "5m", "sh", "-c", `echo pid=$$ socket=$JACKFIELD_NET1_SOCKET; for arg; do echo "[$arg]"; done; exec sleep 1000`,
				"sh", "$(JACKFIELD_EAL)", "--db=$(JACKFIELD_SOCKET_DB)", "$(JACKFIELD_NET1_TYPE)", "$(HOSTNAME_OF_NOBODY)"}})
		pid := ctr.PID()
		h.Vswitch(vswitch.VhostUser, "/run/db/db.sock", "db")
		ctr.WaitLogs("[$(HOSTNAME_OF_NOBODY)]")
		want := "pid=1 socket=/var/run/jackfield/net/net1/sock\n[--vdev=net_virtio_user0,path=/var/run/jackfield/net/net1/sock]\n[--no-pci]\n" +
			"[--db=/var/run/jackfield/named/db/db.sock]\n[vhost-user]\n[$(HOSTNAME_OF_NOBODY)]\n"
		if got := ctr.Logs(); got != want {
			t.Errorf("the program prints\n%swant\n%s", got, want)
		}
		if ctr.PID() != pid {
			t.Errorf("the container's process is %d and was %d", ctr.PID(), pid)
		}
		_, stderr, code := ctr.Exec("/jackfield-run", "echo", "$(JACKFIELD_NET9_SOCKET)")
		if code != 125 || !strings.Contains(stderr, "the container has no variable JACKFIELD_NET9_SOCKET") {
			t.Errorf("a variable that does not exist: status %d, %s", code, stderr)
		}
	})
}
