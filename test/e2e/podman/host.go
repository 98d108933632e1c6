// SPDX-License-Identifier: Apache-2.0

package podman

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/test/e2e/grout"
	"github.com/jackfield/jackfield/test/e2e/jail"
	"github.com/jackfield/jackfield/test/e2e/node"
)

// host has Jackfield as `make install` installs it, Podman with its files in a directory, and a grout.
type host struct {
	t      *testing.T
	dir    string
	common *node.Kit
	grout  *grout.Switch
}

// records has root's records of attachments.
const records = "/var/run/jackfield/cni"

func newHost(t *testing.T) *host {
	t.Helper()
	h := newBareHost(t)
	h.mkdir("sock")
	h.grout = grout.Start(t, h.dir)
	h.grout.Run("interface", "add", "bridge", "br0")
	h.install()
	h.writeRootfs()
	// Podman does not remove the directory of network namespaces.
	t.Cleanup(func() {
		if err := unix.Unmount("/run/netns", unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			t.Error(err)
		}
	})
	return h
}

// newBareHost returns a host on which nothing is installed or running.
func newBareHost(t *testing.T) *host {
	t.Helper()
	h := &host{t: t, common: require(t)}
	dir, err := os.MkdirTemp("", "p") // Podman needs short names
	if err != nil {
		t.Fatal(err)
	}
	h.dir = dir
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return h
}

func (h *host) path(name string) string { return filepath.Join(h.dir, name) }

func (h *host) mkdir(name string) {
	h.t.Helper()
	if err := os.MkdirAll(h.path(name), 0o755); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) write(name, text string) {
	h.t.Helper()
	if !filepath.IsAbs(name) {
		name = h.path(name)
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

// install installs Jackfield below a prefix of the test and the jail's /etc.
func (h *host) install() {
	h.t.Helper()
	bin, err := h.common.Command("jackfield-netavark")
	if err != nil {
		h.t.Fatal(err)
	}
	script := func(what string) {
		cmd := exec.Command("../../../deploy/install/install.sh", what)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "BIN=" + filepath.Dir(bin), "PREFIX=" + h.path("prefix"),
			"CNIBINDIR=" + h.path("cni"), "NRIPLUGINDIR=" + h.path("nri"), "NRICONFDIR=" + h.path("nri.d")}
		if out, err := cmd.CombinedOutput(); err != nil {
			h.t.Errorf("install.sh %s: %v\n%s", what, err, out)
		}
	}
	h.configure(`sockets: ["`+h.path("sock")+`/**"]`, `ports: ["grout0/br0"]`)
	script("install")
	h.t.Cleanup(func() {
		script("uninstall")
		os.RemoveAll("/etc/jackfield")
	})
	// The prefix is not one of netavark's default directories, and the machine has no firewall to configure.
	h.write("/etc/containers/containers.conf.d/10-test.conf", "[engine]\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\n[network]\nfirewall_driver = \"none\"\nnetwork_config_dir = \""+h.path("networks")+
		"\"\nnetavark_plugin_dirs = [\""+h.path("prefix/libexec/netavark")+"\"]\n")
	h.t.Cleanup(func() { os.RemoveAll("/etc/containers") })
}

// configure writes the node's configuration: containers without a pod are allowed these things.
func (h *host) configure(allow ...string) {
	h.write("/etc/jackfield/config.yaml", fmt.Sprintf(`sockets: {roots: [%q]}
deviceInfo: {cniDir: %q}
stateDir: %q
vswitches: [{name: grout0, type: grout, endpoint: %q, grcli: %q, bridges: [br0, br1]}]
policy:
  rules:
    - name: podman
      for: {namespaces: [""]}
      allow: {%s}
`, h.path("sock"), h.path("devinfo"), h.path("state"), h.grout.Socket, h.grout.Grcli, strings.Join(allow, ", ")))
}

// writeRootfs creates a root file system with busybox and the socket client.
func (h *host) writeRootfs() {
	h.t.Helper()
	for _, dir := range []string{"bin", "dev", "proc", "sys", "etc", "tmp", "run", "var"} {
		h.mkdir(filepath.Join("rootfs", dir))
	}
	for from, to := range map[string]string{h.common.Busybox: "busybox", h.common.Commands["sockclient"]: "sockclient"} {
		data, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(h.path(filepath.Join("rootfs/bin", to)), data, 0o755)
		}
		if err != nil {
			h.t.Fatal(err)
		}
	}
	for from, to := range map[string]string{"bin/sh": "busybox", "bin/cat": "busybox", "bin/sleep": "busybox", "bin/ls": "busybox", "bin/test": "busybox", "var/run": "/run"} {
		if err := os.Symlink(to, h.path(filepath.Join("rootfs", from))); err != nil {
			h.t.Fatal(err)
		}
	}
	h.write("rootfs/etc/passwd", "root:x:0:0:root:/:/bin/sh\n")
}

// podman runs a command of Podman and returns what it prints.
func (h *host) podman(args ...string) (string, error) {
	h.t.Helper()
	h.write("storage.conf", "[storage]\ndriver = \"vfs\"\nrunroot = \""+h.path("run")+"\"\ngraphroot = \""+h.path("root")+"\"\n")
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/usr/bin/podman", append([]string{"--tmpdir", h.path("tmp")}, args...)...)
	cmd.Env = append(os.Environ(), "CONTAINERS_STORAGE_CONF="+h.path("storage.conf"), "HOME=/root", "PODMAN_IGNORE_CGROUPSV1_WARNING=1")
	cmd.WaitDelay = time.Minute
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// must runs a command of Podman that has to succeed.
func (h *host) must(args ...string) string {
	h.t.Helper()
	out, err := h.podman(args...)
	if err != nil {
		h.t.Fatalf("podman %q: %v: %s", args, err, out)
	}
	return out
}

// options returns the options that a container needs in the jail, and more, with the root file system and a command
// of sh at the end.
func (h *host) options(command string, more ...string) []string {
	all := []string{"--cgroup-parent", jail.CgroupParent(), "--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096", "--security-opt", "seccomp=unconfined"}
	return append(append(all, more...), "--rootfs", h.path("rootfs"), "/bin/sh", "-c", command)
}

// startPlugin runs jackfield-nri, without a runtime, until the test ends.
func (h *host) startPlugin() {
	h.t.Helper()
	bin, err := h.common.Command("jackfield-nri")
	if err != nil {
		h.t.Fatal(err)
	}
	cmd := exec.Command(bin, "--nri-socket", h.path("nri.sock"))
	run, err := node.StartProcess(cmd, h.path("nri.log"))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		if err := run.Stop(time.Minute); err != nil {
			h.t.Error(err)
		}
		if h.t.Failed() {
			h.t.Logf("jackfield-nri printed:\n%s", node.Tail(run.Log(), 40))
		}
	})
}

// checkGone waits until no port, record, socket directory and device-info is left.
func (h *host) checkGone() {
	h.t.Helper()
	h.checkEmpty(records, h.path("sock"), h.path("devinfo"), h.path("state/claims"), h.path("state/hook/containers"))
}

// checkEmpty waits until grout has no port and the directories have no file.
func (h *host) checkEmpty(dirs ...string) {
	h.t.Helper()
	var found []string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		found = h.grout.Ports()
		for _, dir := range dirs {
			entries, err := os.ReadDir(dir)
			if err != nil && !os.IsNotExist(err) {
				h.t.Fatal(err)
			}
			for _, e := range entries {
				if !strings.HasPrefix(e.Name(), ".") {
					found = append(found, filepath.Join(dir, e.Name()))
				}
			}
		}
		if len(found) == 0 {
			return
		}
	}
	h.t.Errorf("left behind: %q", found)
}

// page is the how-to.
const page = "../../../docs/how-to/use-podman-without-cni.md"

// pageBlocks returns the page's blocks of a language.
func (h *host) pageBlocks(language string) []string {
	h.t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		h.t.Fatal(err)
	}
	var found []string
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		found = append(found, m[1])
	}
	return found
}

// pageConfig returns a configuration of the page, the system's or the user's, with the test's grout.
func (h *host) pageConfig(which int) string {
	h.t.Helper()
	documents := h.pageBlocks("yaml")
	if len(documents) != 2 {
		h.t.Fatalf("the page has %d configurations", len(documents))
	}
	return strings.NewReplacer("/run/grout.sock", h.grout.Socket, "/run/user/1000/grout.sock", h.grout.Socket, "/usr/bin/grcli", h.grout.Grcli).Replace(documents[which])
}

// removeLater removes a directory when the test ends.
func (h *host) removeLater(dir string) {
	h.t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			h.t.Error(err)
		}
	})
}
