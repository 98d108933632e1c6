// SPDX-License-Identifier: Apache-2.0

package install

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	rspec "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jackfield/jackfield/test/e2e/jail"
	"github.com/jackfield/jackfield/test/e2e/node"
)

// bundle writes a bundle for a runtime without NRI: busybox and the socket client, and the OCI hook with a
// configuration file. The container runs a script with sh.
func bundle(kit *node.Kit, dir, id, config, script string) error {
	hook, err := kit.Command("jackfield-hook")
	if err != nil {
		return err
	}
	for _, d := range []string{"rootfs/bin", "rootfs/dev", "rootfs/proc", "rootfs/run", "rootfs/var"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	for from, to := range map[string]string{kit.Busybox: "busybox", kit.Commands["sockclient"]: "sockclient"} {
		data, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "rootfs/bin", to), data, 0o755); err != nil {
			return err
		}
	}
	if err := os.Symlink("../run", filepath.Join(dir, "rootfs/var/run")); err != nil {
		return err
	}
	caps := []string{"CAP_DAC_OVERRIDE"}
	run := func(stage string) []rspec.Hook {
		return []rspec.Hook{{Path: hook, Args: []string{"jackfield-hook", "--config", config, "--log", filepath.Join(dir, "hook.log"), stage}}}
	}
	text, err := json.Marshal(&rspec.Spec{
		Version: "1.0.2",
		Root:    &rspec.Root{Path: "rootfs"},
		Process: &rspec.Process{Args: []string{"/bin/busybox", "sh", "-c", script}, Env: []string{"PATH=/bin"}, Cwd: "/",
			Capabilities: &rspec.LinuxCapabilities{Bounding: caps, Effective: caps, Permitted: caps}},
		Mounts: []rspec.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "mode=755"}},
			{Destination: "/run", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "mode=755"}},
		},
		Linux: &rspec.Linux{
			CgroupsPath: filepath.Join(jail.CgroupParent(), id),
			Resources:   &rspec.LinuxResources{Devices: []rspec.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}},
			Namespaces:  []rspec.LinuxNamespace{{Type: rspec.PIDNamespace}, {Type: rspec.MountNamespace}, {Type: rspec.IPCNamespace}},
		},
		Hooks: &rspec.Hooks{CreateRuntime: run("createRuntime"), Poststop: run("poststop")},
	})
	if err != nil {
		return fmt.Errorf("make bundle %q: %w", dir, err)
	}
	return os.WriteFile(filepath.Join(dir, "config.json"), text, 0o644)
}
