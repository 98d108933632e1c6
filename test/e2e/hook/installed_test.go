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

// install installs Jackfield as `make install` does, below /etc of the jail and a
// prefix of the test's own.
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

// configured runs `podman run` with the configuration that is installed, and no
// option that names hooks.
func (h *host) configured(runtime string, args ...string) (string, error) {
	h.t.Helper()
	// The Podman that conmon starts when the container has ended looks for conmon, too,
	// and is not told by an option where that is; a variable that names a file would
	// have it read no other.
	const system = "/etc/containers/containers.conf"
	if _, err := os.Stat(system); err != nil {
		h.replace(system, "[engine]\nconmon_path = [\""+h.kit.Conmon+"\"]\n")
	}
	h.write("storage.conf", "[storage]\ndriver = \"vfs\"\nrunroot = \""+h.path("podman/run")+"\"\ngraphroot = \""+h.path("podman/root")+"\"\n")
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, h.kit.Podman, append([]string{"--root", h.path("podman/root"), "--runroot", h.path("podman/run"), "--tmpdir", h.path("podman/tmp"),
		"--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--events-backend", "file", "--conmon", h.kit.Conmon, "--runtime", h.runtimes()[runtime],
		"run", "--rm", "--network", "none", "--cgroup-parent", jail.CgroupParent(),
		"--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096", "--security-opt", "seccomp=unconfined"}, args...)...)
	cmd.Env = append(os.Environ(), "CONTAINERS_STORAGE_CONF="+h.path("storage.conf"), "HOME=/root")
	cmd.WaitDelay = time.Minute
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// What `make install` puts on a host is what Podman reads there, and runs.
func TestPodmanAsInstalled(t *testing.T) {
	podmans(t, func(t *testing.T, h *host, runtime string) {
		h.install()
		const use = "echo FANCY=$FANCY; dd if=/dev/fancy bs=4 count=1 2>/dev/null | od -An -tx1"
		// By the drop-in of containers.conf.
		out, err := h.configured(runtime, h.asks(use, "full")...)
		h.wants(out, err, "FANCY=1", "00 00 00 00")
		dirs := []string{h.path("prefix/share/jackfield/podman-hooks.d")}
		out, err = h.podman(runtime, dirs, h.asks(use, "full")...)
		h.wants(out, err, "FANCY=1", "00 00 00 00")
		out, err = h.podman(runtime, dirs, h.asks("echo started", "secret")...)
		refused(t, out, err, `refuse CDI device "vendor.example.com/dev=secret"`)
		// The file for CRI-O is one for Podman, too: of the stages that every runtime has.
		out, err = h.podman(runtime, []string{h.path("prefix/share/jackfield/crio-hooks.d")}, h.asks(readDevice, "zero")...)
		h.wants(out, err, "00 00 00 00", "from the host", "read-only")
		// What would stop the hook does not stop a container that asks for nothing.
		if err := os.WriteFile("/etc/jackfield/config.yaml", []byte("not a configuration\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err = h.podman(runtime, dirs, h.asks("ls /dev/fancy || echo none")...)
		h.wants(out, err, "none")
		if out, err = h.podman(runtime, dirs, h.asks("echo started", "env")...); err == nil || !strings.Contains(out, "config.yaml") {
			t.Errorf("with a broken configuration: %v, %s", err, out)
		}
	})
}
