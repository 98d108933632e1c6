// SPDX-License-Identifier: Apache-2.0

package podman

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/internal/port/vswitch"
	"github.com/jackfield/jackfield/test/ovs"
)

// startOVS starts Open vSwitch with bridge br0, configures it as ovs0, and creates the network "fast" on it.
func (h *host) startOVS() *ovs.Switch {
	h.t.Helper()
	s := ovs.StartIn(h.t, h.dir)
	h.write("/etc/jackfield/config.yaml", fmt.Sprintf(`sockets: {roots: [%q]}
deviceInfo: {cniDir: %q}
stateDir: %q
vswitches: [{name: ovs0, type: ovs, endpoint: %q, bridges: [br0]}]
policy:
  rules:
    - name: podman
      for: {namespaces: [""]}
      allow: {sockets: ["%[1]s/**"], ports: ["ovs0/br0"]}
`, h.path("sock"), h.path("devinfo"), h.path("state"), s.Endpoint()))
	h.must("network", "create", "--driver", "jackfield-netavark", "--opt", "vswitch=ovs0", "--opt", "bridge=br0",
		"--opt", "type=vhost-user", "--opt", "mode=server", "fast")
	return s
}

// waitPorts waits until br0 of Open vSwitch has the ports of these containers, and no others.
func (h *host) waitPorts(s *ovs.Switch, containers ...string) {
	h.t.Helper()
	var want []string
	for _, c := range containers {
		id := h.must("inspect", "--format", "{{.Id}}", c)
		want = append(want, vswitch.PortName(vswitch.Owner{ContainerID: id, Interface: "eth0"}))
	}
	slices.Sort(want)
	h.wait(fmt.Sprintf("br0 has the ports %q", want), func() bool {
		return slices.Equal(slices.Sorted(slices.Values(strings.Fields(s.Vsctl("list-ports", "br0")))), want)
	})
}

// runFast starts a container on the network "fast", which waits for Open vSwitch on its socket.
func (h *host) runFast(name string) {
	h.t.Helper()
	h.must(append([]string{"run", "-d", "--name", name, "--network", "fast"},
		h.options("sockclient listen $JACKFIELD_ETH0_SOCKET hello 1 && echo connected && sleep 1000", request...)...)...)
}

// Open vSwitch connects to the socket in the container. The port ends with the container, is created again after its
// loss, and is removed later if the database was down when the container ended.
func TestPortOnOpenVSwitch(t *testing.T) {
	h := newHost(t)
	s := h.startOVS()
	h.runFast("a")
	h.waitPorts(s, "a")
	h.wait("Open vSwitch connects", func() bool { return strings.Contains(h.must("logs", "a"), "connected") })
	h.must("kill", "a")
	h.waitPorts(s)
	h.must("start", "a")
	h.waitPorts(s, "a")
	h.must("rm", "--force", "--time", "0", "a")
	h.waitPorts(s)
	h.checkGone()

	h.runFast("b")
	h.waitPorts(s, "b")
	s.KillSwitch()
	s.KillDatabase()
	if out, _ := h.podman("rm", "--force", "--time", "0", "b"); !strings.Contains(out, "ovs0") {
		t.Errorf("podman rm does not report that ovs0 is down: %s", out)
	}
	if left, err := os.ReadDir(records); err != nil || len(left) != 1 {
		t.Fatalf("records %v, %v", left, err)
	}
	s.StartDatabase()
	s.StartSwitch()
	h.runFast("c")
	h.waitPorts(s, "c")

	h.startPlugin()
	for _, port := range strings.Fields(s.Vsctl("list-ports", "br0")) {
		s.Vsctl("del-port", port)
	}
	h.waitPorts(s, "c")
	h.must("rm", "--force", "--time", "0", "c")
	h.waitPorts(s)
	h.checkGone()
}
