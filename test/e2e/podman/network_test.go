// SPDX-License-Identifier: Apache-2.0

package podman

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/port/vswitch"
	"github.com/jackfield/jackfield/test/e2e/grout"
)

// createNetwork creates a network of Podman with a port on grout.
func (h *host) createNetwork(name string, more ...string) {
	h.t.Helper()
	h.must(append(append([]string{"network", "create", "--driver", "jackfield-netavark", "--opt", "vswitch=grout0", "--opt", "bridge=br0"}, more...), name)...)
}

// request is the annotation by which the OCI hook runs and delivers the networks.
var request = []string{"--annotation", "networks.jackfield.dev=auto"}

// port returns the only port of grout, which has to be the one of a container's interface.
func (h *host) port(container, ifName string) grout.Interface {
	h.t.Helper()
	id := h.must("inspect", "--format", "{{.Id}}", container)
	name := vswitch.PortName(vswitch.Owner{ContainerID: id, Interface: ifName})
	if ports := h.grout.Ports(); !slices.Equal(ports, []string{name}) {
		h.t.Fatalf("grout has ports %q, want %s", ports, name)
	}
	port, _ := h.grout.Interface(name)
	return port
}

// wait waits until f is true.
func (h *host) wait(what string, f func() bool) {
	h.t.Helper()
	for end := time.Now().Add(2 * time.Minute); !f(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			h.t.Fatalf("timed out: %s", what)
		}
	}
}

// A network creates a port for each container, grout connects to the socket in the container, and the end of the
// container removes the port.
//
// grout 0.19 sometimes crashes when the port is deleted. What Jackfield does is then checked with another grout.
func TestContainerHasPort(t *testing.T) {
	for range 3 {
		crashed := false
		t.Run("grout", func(t *testing.T) {
			h := newHost(t)
			h.grout.OnCrash = func() {
				crashed = true
				t.Skip("grout crashed")
			}
			h.checkPort()
		})
		if !crashed {
			return
		}
		t.Log("grout crashed")
	}
	t.Error("three grouts crashed")
}

// checkPort is TestContainerHasPort with one grout.
func (h *host) checkPort() {
	t := h.t
	h.createNetwork("fast", "--opt", "type=vhost-user", "--opt", "mode=server", "--opt", "queues=2", "--subnet", "10.88.5.0/24")
	// The socket client ends when grout has connected.
	h.must(append([]string{"run", "-d", "--name", "c", "--network", "fast:mac=c2:11:22:33:44:55,ip=10.88.5.9"},
		h.options("cat $JACKFIELD_DEVICES_FILE && sockclient listen $JACKFIELD_ETH0_SOCKET hello 1 && echo EAL=$JACKFIELD_ETH0_EAL && sleep 1000", request...)...)...)
	port := h.port("c", "eth0")
	if port.Domain != "br0" || port.Queues != 2 || port.Description == "" {
		t.Errorf("grout has %+v", port)
	}
	logs := ""
	h.wait("grout's connection", func() bool { logs = h.must("logs", "c"); return strings.Contains(logs, "EAL=") })
	for _, want := range []string{`"name": "fast"`, `"10.88.5.9/24"`, `"10.88.5.1"`, `"mac": "c2:11:22:33:44:55"`, `"/var/run/jackfield/net/eth0/vhost-user.sock"`,
		"EAL=--vdev=net_virtio_user0,path=/var/run/jackfield/net/eth0/vhost-user.sock,server=1,queues=2,mac=c2:11:22:33:44:55"} {
		if !strings.Contains(logs, want) {
			t.Errorf("the container does not print %s:\n%s", want, logs)
		}
	}
	var inspected []struct {
		NetworkSettings struct {
			Networks map[string]struct{ IPAddress, MacAddress string }
		}
	}
	if err := json.Unmarshal([]byte(h.must("inspect", "c")), &inspected); err != nil {
		t.Fatal(err)
	}
	if n := inspected[0].NetworkSettings.Networks["fast"]; n.IPAddress != "10.88.5.9" || n.MacAddress != "c2:11:22:33:44:55" {
		t.Errorf("Podman has the network as %+v", n)
	}
	h.must("kill", "c")
	h.checkGone()
	h.must("start", "c")
	h.port("c", "eth0")
	h.must("rm", "--force", "--time", "0", "c")
	h.checkGone()
}

// Grout creates the sockets of these devices, and the container has them. Its networks may include one of the kernel.
func TestVswitchCreatesSocket(t *testing.T) {
	h := newHost(t)
	for name, device := range map[string][]string{
		"client": {"--opt", "type=vhost-user", "--opt", "mode=client", "--opt", "mtu=1400"},
		"slave":  {"--opt", "type=memif", "--opt", "role=slave"},
	} {
		h.createNetwork(name, device...)
		h.must(append([]string{"run", "-d", "--name", "c", "--network", name},
			h.options("test -S $JACKFIELD_ETH0_SOCKET && echo socket; ls /var/run/jackfield/net/eth0; sleep 1000", "--annotation", "networks.jackfield.dev="+name)...)...)
		if port := h.port("c", "eth0"); name == "client" && port.MTU != 1400 {
			t.Errorf("grout has %+v", port)
		}
		h.wait(name, func() bool { return strings.HasPrefix(h.must("logs", "c"), "socket\n") })
		h.must("rm", "--force", "--time", "0", "c")
		h.checkGone()
	}
}

// What the policy does not grant stops the container, with the reason, and nothing is left. Without a request nothing
// is delivered.
func TestPolicyDenies(t *testing.T) {
	h := newHost(t)
	h.createNetwork("fast", "--opt", "type=vhost-user", "--opt", "mode=server")
	run := func(more ...string) (string, error) {
		return h.podman(append([]string{"run", "--rm", "--network", "fast"}, h.options("echo started; ls /var/run", more...)...)...)
	}
	h.configure(`sockets: ["` + h.path("sock") + `/**"]`)
	out, err := run(request...)
	if err == nil || strings.Contains(out, "started") {
		t.Errorf("without a rule for the port: %v, %s", err, out)
	}
	for _, want := range []string{"jackfield-netavark", "the node's policy denies port grout0/br0", "allow.ports", `"grout0/br0"`} {
		if !strings.Contains(strings.ReplaceAll(out, `\`, ""), want) {
			t.Errorf("without a rule for the port, Podman does not print %s:\n%s", want, out)
		}
	}
	h.checkGone()
	h.configure(`ports: ["grout0/br0"]`)
	out, err = run("--annotation", "networks.jackfield.dev=fast")
	if err == nil || strings.Contains(out, "started") || !strings.Contains(out, "deny socket") || !strings.Contains(out, "allow.sockets") {
		t.Errorf("without a rule for the socket: %v, %s", err, out)
	}
	h.checkGone()
	if out, err := run(); err != nil || strings.Contains(out, "jackfield") {
		t.Errorf("without a request: %v, %s", err, out)
	}
	h.checkGone()
}

// podman network create refuses what no container could get.
func TestCreateRefusesNetworks(t *testing.T) {
	h := newHost(t)
	for _, tc := range []struct {
		options, want string
	}{
		{"--opt brige=br0", `unknown option "brige": must be one of`},
		{"--opt type=vhost-user --opt mode=server --opt vswitch=grout1", `did you mean grout0?`},
		{"--opt type=vhost-user --opt mode=server --opt vswitch=grout0 --opt bridge=br2", `option bridge: invalid value "br2": must be one of the bridges of vswitch grout0`},
		{"--opt type=vhost-user --opt vswitch=grout0 --opt bridge=br0", `option mode: invalid value "": must be server or client`},
		{"--opt type=vhost-user --opt mode=server --internal", "--internal"},
	} {
		args := append([]string{"network", "create", "--driver", "jackfield-netavark"}, strings.Fields(tc.options)...)
		out, err := h.podman(append(args, "n")...)
		if err == nil || !strings.Contains(strings.ReplaceAll(out, `\`, ""), tc.want) {
			t.Errorf("%s: %v, %s; want %s", tc.options, err, out, tc.want)
		}
	}
	if out := h.must("network", "ls", "--quiet", "--filter", "driver=jackfield-netavark"); out != "" {
		t.Errorf("Podman has the networks %q", out)
	}
}

// A grout that is down has forgotten its ports, so a container ends as usual.
func TestContainerEndsWhileSwitchIsDown(t *testing.T) {
	h := newHost(t)
	h.createNetwork("fast", "--opt", "type=vhost-user", "--opt", "mode=server")
	h.must(append([]string{"run", "-d", "--name", "c", "--network", "fast"}, h.options("sleep 1000", request...)...)...)
	h.port("c", "eth0")
	h.grout.Kill()
	h.must("rm", "--force", "--time", "0", "c")
	if left, err := os.ReadDir(records); err != nil || len(left) > 0 {
		t.Errorf("records %v, %v", left, err)
	}
	h.grout.Restart()
	h.checkGone()
}

// While grout hangs, a container cannot give its port back. The next container of the node does it.
func TestLeftoverIsRemoved(t *testing.T) {
	h := newHost(t)
	h.createNetwork("fast", "--opt", "type=vhost-user", "--opt", "mode=server")
	h.must(append([]string{"run", "-d", "--name", "c", "--network", "fast"}, h.options("sleep 1000", request...)...)...)
	h.port("c", "eth0")
	h.grout.Signal(unix.SIGSTOP)
	out, _ := h.podman("rm", "--force", "--time", "0", "c")
	if !strings.Contains(out, "grout0") {
		t.Errorf("podman rm does not say that grout does not answer: %s", out)
	}
	left, err := os.ReadDir(records)
	if err != nil || len(left) != 1 {
		t.Fatalf("records %v, %v, want the one of the port", left, err)
	}
	h.grout.Signal(unix.SIGCONT)
	h.must(append([]string{"run", "--rm", "--network", "fast"}, h.options("echo started", request...)...)...)
	h.checkGone()
}

// jackfield-nri, which needs no runtime for this, creates the port of a running container again when grout has lost it.
func TestLostPortIsCreatedAgain(t *testing.T) {
	h := newHost(t)
	h.createNetwork("fast", "--opt", "type=vhost-user", "--opt", "mode=server")
	h.startPlugin()
	h.must(append([]string{"run", "-d", "--name", "c", "--network", "fast"}, h.options("sleep 1000", request...)...)...)
	before := h.port("c", "eth0")
	h.grout.Kill()
	h.grout.Restart()
	h.grout.Run("interface", "add", "bridge", "br0")
	h.wait("the port", func() bool { return slices.Equal(h.grout.Ports(), []string{before.Name}) })
	if after := h.port("c", "eth0"); after.Domain != "br0" || after.Devargs != before.Devargs {
		t.Errorf("grout has %+v, want %+v", after, before)
	}
	h.must("rm", "--force", "--time", "0", "c")
	h.checkGone()
}
