// SPDX-License-Identifier: Apache-2.0

package podman

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/internal/port/vswitch"
)

// An ordinary user's container has a port on a vswitch whose API the user may use, and the user's directories have
// everything else. A user without such rights gets the reason.
func TestRootlessContainerHasPort(t *testing.T) {
	// Podman hides /run from its network plugins, but for the user's own directory in it.
	t.Setenv("TMPDIR", "/opt")
	h := newHost(t)
	u := h.newUser()
	u.must("network", "create", "--driver", "jackfield-netavark", "--opt", "vswitch=grout0", "--opt", "bridge=br0", "--opt", "type=vhost-user", "--opt", "mode=server", "fast")
	// grout 0.19 can crash when a port is removed while it handles the end of a connection.
	run := append([]string{"run", "--rm", "--network", "fast"}, u.options("sockclient listen $JACKFIELD_ETH0_SOCKET hello 1 && echo EAL=$JACKFIELD_ETH0_EAL && sleep 2", request...)...)

	out, err := u.podman(run...)
	if err == nil || !strings.Contains(out, "jackfield-netavark") || !strings.Contains(out, "grout0") {
		t.Errorf("without access to grout: %v, %s", err, out)
	}
	// The next container removes what could not be removed without access.
	if err := os.Chmod(h.grout.Socket, 0o666); err != nil {
		t.Fatal(err)
	}
	out, err = u.podman(run...)
	if err != nil || !strings.Contains(out, "EAL=--vdev=net_virtio_user0,path=/var/run/jackfield/net/eth0/vhost-user.sock,server=1") {
		t.Errorf("%v, %s", err, out)
	}
	u.checkGone()

	u.must(append([]string{"run", "-d", "--name", "c", "--network", "fast"}, u.options("sleep 1000", request...)...)...)
	id := u.must("inspect", "--format", "{{.Id}}", "c")
	if i, ok := h.grout.Interface(vswitch.PortName(vswitch.Owner{ContainerID: id, Interface: "eth0"})); !ok || i.Domain != "br0" {
		t.Errorf("grout has %+v", i)
	}
	if records, err := filepath.Glob(u.run + "/jackfield/cni/*"); err != nil || len(records) != 1 {
		t.Errorf("the user's records are %q, %v", records, err)
	}
	u.must("kill", "c")
	u.checkGone()
	u.must("rm", "c")
}
