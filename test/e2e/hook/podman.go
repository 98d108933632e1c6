// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/test/e2e/jail"
	"github.com/jackfield/jackfield/test/ocivalid"
)

// hooksFile writes a hooks.d directory with the hook at these stages, for containers with a request in their
// annotations.
func (h *host) hooksFile(dir string, stages ...string) string {
	h.t.Helper()
	args := h.hookArgs("")
	if len(stages) == 1 {
		args = h.hookArgs(stages[0])
	}
	data, err := json.Marshal(map[string]any{
		"version": "1.0.0",
		"hook":    map[string]any{"path": h.hookCommand(), "args": args},
		"when":    map[string]any{"annotations": map[string]string{`^(devices|networks)\.jackfield\.dev(/.*)?$`: ".*"}},
		"stages":  stages,
	})
	if err != nil {
		h.t.Fatal(err)
	}
	h.write(dir+"/jackfield.json", string(data))
	return h.path(dir)
}

// podman runs `podman run` with a runtime and hooks directories, and returns its output.
func (h *host) podman(runtime string, hooks []string, args ...string) (string, error) {
	h.t.Helper()
	return h.podmanCommand(runtime, hooks, "run", append([]string{"--rm"}, h.options(args)...)...)
}

// options returns the options that a container needs in the jail, and more.
func (h *host) options(more []string) []string {
	return append([]string{"--network", "none"}, h.withNetwork(more)...)
}

// withNetwork returns options for a container that has a network.
func (h *host) withNetwork(more []string) []string {
	return append([]string{"--cgroup-parent", jail.CgroupParent(),
		"--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096", "--security-opt", "seccomp=unconfined"}, more...)
}

func (h *host) podmanCommand(runtime string, hooks []string, command string, args ...string) (string, error) {
	h.t.Helper()
	// When the container has ended, conmon starts Podman again with this file and without the flag.
	h.write("containers.conf", "[engine]\nconmon_path = [\""+h.kit.Conmon+"\"]\n"+h.networks())
	h.write("storage.conf", "[storage]\ndriver = \"vfs\"\nrunroot = \""+h.path("podman/run")+"\"\ngraphroot = \""+h.path("podman/root")+"\"\n")
	all := []string{"--root", h.path("podman/root"), "--runroot", h.path("podman/run"), "--tmpdir", h.path("podman/tmp"),
		"--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--events-backend", "file",
		"--conmon", h.kit.Conmon, "--runtime", h.runtimes()[runtime]}
	for _, dir := range hooks {
		all = append(all, "--hooks-dir", dir)
	}
	if len(hooks) > 0 {
		all = append(all, "--hooks-dir", h.recordConfigurations())
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, h.kit.Podman, append(append(all, command), args...)...)
	cmd.Env = append(os.Environ(), "CONTAINERS_CONF="+h.path("containers.conf"),
		"CONTAINERS_STORAGE_CONF="+h.path("storage.conf"), "PATH="+os.Getenv("PATH"), "HOME=/root")
	out, err := h.output(cmd)
	h.checkConfigurations()
	return out, err
}

// recordConfigurations returns a hooks directory whose hooks write down a container's configuration before and
// after the other hooks of stage precreate. Podman runs hooks in the order of their files' names.
func (h *host) recordConfigurations() string {
	h.t.Helper()
	h.mkdir("configurations")
	for file, to := range map[string]string{"00-before": "before.json", "zz-after": "after.json"} {
		data, err := json.Marshal(map[string]any{
			"version": "1.0.0", "stages": []string{"precreate"}, "when": map[string]any{"always": true},
			"hook": map[string]any{"path": "/usr/bin/tee", "args": []string{"tee", h.path("configurations/" + to)}},
		})
		if err != nil {
			h.t.Fatal(err)
		}
		h.write("recorders/"+file+".json", string(data))
	}
	return h.path("recorders")
}

// checkConfigurations checks with runtime-tools the last configuration that hooks of precreate changed.
func (h *host) checkConfigurations() {
	h.t.Helper()
	before, err1 := os.ReadFile(h.path("configurations/before.json"))
	after, err2 := os.ReadFile(h.path("configurations/after.json"))
	if err1 != nil || err2 != nil {
		return // no container was started, or the hook refused it
	}
	ocivalid.CheckText(h.t, before, after)
	for _, name := range []string{"before.json", "after.json"} {
		if err := os.Remove(h.path("configurations/" + name)); err != nil {
			h.t.Error(err)
		}
	}
}

// cniNetwork writes a network of Podman: bridge followed by jackfield-cni, or jackfield-cni first. The
// interface gets a socket of the vswitch.
func (h *host) cniNetwork(name string, first bool) {
	h.t.Helper()
	own, err := h.common.Command("jackfield-cni")
	if err != nil {
		h.t.Fatal(err)
	}
	// Podman does not remove the directory of network namespaces.
	h.t.Cleanup(func() {
		if err := unix.Unmount("/run/netns", unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			h.t.Error(err)
		}
	})
	h.mkdir("cni")
	for name, file := range map[string]string{"bridge": h.common.CNI + "/bridge", "host-local": h.common.CNI + "/host-local", "jackfield-cni": own} {
		if err := os.Symlink(file, h.path("cni/"+name)); err != nil {
			h.t.Fatal(err)
		}
	}
	ipam := `"ipam": {"type": "host-local", "subnet": "10.88.7.0/24", "dataDir": "` + h.path("leases") + `"}`
	fast := `"type": "jackfield-cni", "device": {"type": "vhost-user", "mode": "client", "path": "` + h.path("sock/port0/vhost.sock") + `"},
		"socketDir": "` + h.path("sock") + `", "stateDir": "` + h.path("cni-state") + `", "deviceInfoDir": "` + h.path("devinfo") + `"`
	h.writeSystemFile("/etc/jackfield/config.yaml", "cni: {stateDirs: ["+h.path("cni-state")+"], socketDirs: ["+h.path("sock")+"], deviceInfoDirs: ["+h.path("devinfo")+"]}\n")
	plugins := `{"type": "bridge", "bridge": "jf-` + name + `", ` + ipam + `}, {` + fast + `}`
	if first {
		plugins = `{` + fast + `, "capabilities": {"mac": true}, ` + ipam + `}`
	}
	h.write("networks/"+name+".conflist", `{"cniVersion": "1.0.0", "name": "`+name+`", "plugins": [`+plugins+`]}`)
}

// networks returns Podman's directory of networks, if the test has any.
func (h *host) networks() string {
	if _, err := os.Stat(h.path("networks")); err != nil {
		return ""
	}
	return "[network]\nnetwork_backend = \"cni\"\ncni_plugin_dirs = [\"" + h.path("cni") + "\"]\nnetwork_config_dir = \"" + h.path("networks") + "\"\n"
}

// podmanAnnotation returns a request for CDI devices for Podman's command line. Podman splits annotations at
// commas unless the whole is quoted.
func podmanAnnotation(devices ...string) string {
	return `"devices.jackfield.dev=` + deviceAnnotation(devices...)["devices.jackfield.dev"] + `"`
}

// requestOptions returns the options of `podman run` for a container that requests CDI devices and runs a
// command in sh.
func (h *host) requestOptions(command string, devices ...string) []string {
	var args []string
	if len(devices) > 0 {
		args = []string{"--annotation", podmanAnnotation(devices...)}
	}
	return append(args, "--rootfs", h.rootfs(), "/bin/sh", "-c", command)
}
