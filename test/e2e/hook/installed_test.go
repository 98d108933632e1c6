// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackfield/jackfield/test/e2e/jail"
)

// install installs Jackfield as `make install` does, below the jail's /etc and a prefix of the test.
func (h *host) install() {
	h.t.Helper()
	const config = "/etc/jackfield/config.yaml"
	data, err := os.ReadFile(h.path("config.yaml"))
	if err == nil {
		err = os.MkdirAll(filepath.Dir(config), 0o755)
	}
	if err == nil {
		err = os.WriteFile(config, data, 0o644)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	script := func(what string) {
		cmd := exec.Command("../../../deploy/install/install.sh", what)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "BIN=" + filepath.Dir(h.hookCommand()), "PREFIX=" + h.path("prefix"),
			"CNIBINDIR=" + h.path("cni"), "NRIPLUGINDIR=" + h.path("nri"), "NRICONFDIR=" + h.path("nri.d")}
		if out, err := cmd.CombinedOutput(); err != nil {
			h.t.Errorf("install.sh %s: %v\n%s", what, err, out)
		}
	}
	script("install")
	h.t.Cleanup(func() {
		script("uninstall")
		os.RemoveAll(filepath.Dir(config))
	})
}

// runInstalled runs `podman run` with the installed configuration and without options for hooks.
func (h *host) runInstalled(runtime string, args ...string) (string, error) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	words := h.installedPodman(runtime)
	cmd := exec.CommandContext(ctx, words[0], append(words[1:], args...)...)
	cmd.WaitDelay = time.Minute
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// installedPodman returns the words of `podman run` with the options that the jail needs.
func (h *host) installedPodman(runtime string) []string {
	h.t.Helper()
	// When the container has ended, conmon starts a Podman that needs the path of conmon, too, and that does
	// not get the options. With a variable that names a configuration file, that Podman would read no other
	// file.
	const system = "/etc/containers/containers.conf"
	if _, err := os.Stat(system); err != nil {
		h.replace(system, "[engine]\nconmon_path = [\""+h.kit.Conmon+"\"]\n")
	}
	h.write("storage.conf", "[storage]\ndriver = \"vfs\"\nrunroot = \""+h.path("podman/run")+"\"\ngraphroot = \""+h.path("podman/root")+"\"\n")
	return []string{"env", "CONTAINERS_STORAGE_CONF=" + h.path("storage.conf"), "HOME=/root", h.kit.Podman, "--root", h.path("podman/root"),
		"--runroot", h.path("podman/run"), "--tmpdir", h.path("podman/tmp"), "--storage-driver", "vfs", "--cgroup-manager", "cgroupfs",
		"--events-backend", "file", "--conmon", h.kit.Conmon, "--runtime", h.runtimes()[runtime], "run", "--network", "none",
		"--cgroup-parent", jail.CgroupParent(), "--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096", "--security-opt", "seccomp=unconfined", "--rm"}
}

// Podman reads and runs what `make install` installs.
func TestPodmanAsInstalled(t *testing.T) {
	eachRuntime(t, func(t *testing.T, h *host, runtime string) {
		h.install()
		const use = "echo FANCY=$FANCY; dd if=/dev/fancy bs=4 count=1 2>/dev/null | od -An -tx1"
		// The drop-in of containers.conf configures the hook.
		out, err := h.runInstalled(runtime, h.requestOptions(use, "full")...)
		h.checkPrinted(out, err, "FANCY=1", "00 00 00 00")
		dirs := []string{h.path("prefix/share/jackfield/podman-hooks.d")}
		out, err = h.podman(runtime, dirs, h.requestOptions(use, "full")...)
		h.checkPrinted(out, err, "FANCY=1", "00 00 00 00")
		out, err = h.podman(runtime, dirs, h.requestOptions("echo started", "secret")...)
		checkRefused(t, out, err, `deny CDI device "vendor.example.com/dev=secret"`)
		// Podman also accepts the file for CRI-O, which has the stages of every runtime.
		out, err = h.podman(runtime, []string{h.path("prefix/share/jackfield/crio-hooks.d")}, h.requestOptions(readDevice, "zero")...)
		h.checkPrinted(out, err, "00 00 00 00", "from the host", "read-only")
		// A configuration that makes the hook fail does not stop a container without a request.
		if err := os.WriteFile("/etc/jackfield/config.yaml", []byte("not a configuration\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err = h.podman(runtime, dirs, h.requestOptions("ls /dev/fancy || echo none")...)
		h.checkPrinted(out, err, "none")
		if out, err = h.podman(runtime, dirs, h.requestOptions("echo started", "env")...); err == nil || !strings.Contains(out, "config.yaml") {
			t.Errorf("with a broken configuration: %v, %s", err, out)
		}
	})
}
