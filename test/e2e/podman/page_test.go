// SPDX-License-Identifier: Apache-2.0

package podman

import (
	"strings"
	"testing"

	"github.com/jackfield/jackfield/test/e2e/jail"
	"github.com/jackfield/jackfield/test/e2e/packaged"
)

// The commands of the how-to page do what it says.
func TestPodmanHowToPage(t *testing.T) {
	h := newHost(t)
	commands := h.pageBlocks("sh")
	if len(commands) != 3 {
		t.Fatalf("the page has %d commands", len(commands))
	}
	h.write("/etc/jackfield/config.yaml", h.pageConfig(0))
	h.must(strings.Fields(commands[0])[1:]...)
	const image = "docker.io/library/alpine"
	before, after, ok := strings.Cut(strings.TrimSpace(commands[1]), image)
	if !ok || strings.TrimSpace(after) != "env" {
		t.Fatalf("the container's command is %q", commands[1])
	}
	out := h.must(append(strings.Fields(before)[1:], h.options("/bin/busybox env")...)...)
	expected := h.pageBlocks("text")
	if len(expected) != 1 {
		t.Fatalf("the page has %d blocks of output", len(expected))
	}
	for line := range strings.Lines(expected[0]) {
		if line = strings.TrimSpace(line); !strings.Contains(out, line) {
			t.Errorf("the container does not print %q:\n%s", line, out)
		}
	}
	if ports := h.grout.Run(strings.Fields(commands[2])[1:]...); strings.Contains(ports, "jf") {
		t.Errorf("grout has %s", ports)
	}
	for _, dir := range []string{"/run/jackfield", "/var/run/k8s.cni.cncf.io"} {
		h.removeLater(dir)
	}
}

// The Podman tutorial works as printed, with the Debian package and Podman 5.
func TestPodmanTutorial(t *testing.T) {
	h := newBareHost(t)
	h.writeRootfs()
	h.write("rootfs/etc/group", "root:x:0:\n")
	h.write("storage.conf", "[storage]\ndriver = \"vfs\"\nrunroot = \""+h.path("run")+"\"\ngraphroot = \""+h.path("root")+"\"\n")
	program := ""
	for _, u := range packages.Require(t) {
		if u.Name == "podman" {
			program = u.Path("usr/bin/podman")
		}
	}
	packaged.RunPodmanTutorial(t, packaged.PodmanRun(h.path("rootfs"), "env", "CONTAINERS_STORAGE_CONF="+h.path("storage.conf"),
		"HOME=/root", "PODMAN_IGNORE_CGROUPSV1_WARNING=1", program, "--tmpdir", h.path("tmp"), "--cgroup-manager", "cgroupfs", "--events-backend", "file",
		"run", "--network", "none", "--cgroup-parent", jail.CgroupParent(), "--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096",
		"--security-opt", "seccomp=unconfined", "--rm"))
}
