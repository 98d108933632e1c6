// SPDX-License-Identifier: Apache-2.0

package podman

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/test/e2e/jail"
)

// A Quadlet unit requests its devices with Annotation=. systemd's generator turns the unit into the commands of a service,
// which are executed here as systemd does.
func TestQuadletUnitHasPort(t *testing.T) {
	h := newHost(t)
	h.createNetwork("fast", "--opt", "type=vhost-user", "--opt", "mode=client")
	h.write("rootfs/bin/app", "#!/bin/sh\ntest -S $JACKFIELD_ETH0_SOCKET && echo socket\nsleep 1000\n")
	if err := os.Chmod(h.path("rootfs/bin/app"), 0o755); err != nil {
		t.Fatal(err)
	}
	h.write("quadlet/app.container", `[Unit]
Description=An application on the vswitch

[Container]
ContainerName=app
Rootfs=`+h.path("rootfs")+`
Exec=/bin/app
Network=fast
Annotation=networks.jackfield.dev=auto
# The test's jail is no service of systemd.
CgroupsMode=enabled
PodmanArgs=--cgroup-parent `+jail.CgroupParent()+` --security-opt seccomp=unconfined
Ulimit=nofile=4096:4096
Ulimit=nproc=4096:4096
`)
	unit := h.generateUnit("app")
	h.must(command(t, unit, "ExecStart")...)
	h.port("app", "eth0")
	h.wait("the socket", func() bool { return h.must("logs", "app") == "socket" })
	h.must(command(t, unit, "ExecStop")...)
	h.checkGone()

	// A unit whose request is refused does not start, and says why.
	h.configure(`sockets: ["` + h.path("sock") + `/**"]`)
	out, err := h.podman(command(t, unit, "ExecStart")...)
	if err == nil || !strings.Contains(out, "grout0/br0") || !strings.Contains(out, "policy") {
		t.Errorf("the refused unit: %v: %s", err, out)
	}
	h.checkGone()
}

// generateUnit runs systemd's generator of Quadlet units and returns a generated service.
func (h *host) generateUnit(name string) string {
	h.t.Helper()
	h.mkdir("units")
	cmd := exec.Command("/usr/libexec/podman/quadlet", "-no-kmsg-log", h.path("units"), h.path("units"), h.path("units"))
	cmd.Env = append(os.Environ(), "QUADLET_UNIT_DIRS="+h.path("quadlet"))
	if out, err := cmd.CombinedOutput(); err != nil {
		h.t.Fatalf("quadlet: %v: %s", err, out)
	}
	text, err := os.ReadFile(h.path("units/" + name + ".service"))
	if err != nil {
		h.t.Fatal(err)
	}
	return strings.NewReplacer("%N", name, "%t", h.path("units")).Replace(string(text))
}

// command returns the arguments of Podman in a command of a service.
func command(t *testing.T, unit, key string) []string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + key + `=(?:-)?(?:/usr/bin/)?podman (.*)$`).FindStringSubmatch(unit)
	if m == nil {
		t.Fatalf("the service has no command %s of Podman:\n%s", key, unit)
	}
	return strings.Fields(m[1])
}
