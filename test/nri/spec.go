// SPDX-License-Identifier: Apache-2.0

package nritest

import (
	"github.com/containerd/nri/pkg/api"
	rspec "github.com/opencontainers/runtime-spec/specs-go"
)

// BaseSpec returns the OCI spec of a container before plugins adjust it. Every call returns a new
// one.
func BaseSpec(ctr *api.Container) *rspec.Spec {
	spec := &rspec.Spec{
		Version: "1.2.0",
		Process: &rspec.Process{
			Args: []string{"/bin/sleep", "3600"},
			Cwd:  "/",
			Env:  []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOSTNAME=test"},
			User: rspec.User{UID: ctr.GetUser().GetUid(), GID: ctr.GetUser().GetGid()},
		},
		Root:   &rspec.Root{Path: "rootfs"},
		Mounts: baseMounts(),
		Linux: &rspec.Linux{
			Namespaces: []rspec.LinuxNamespace{{Type: rspec.PIDNamespace}, {Type: rspec.MountNamespace}},
			Resources: &rspec.LinuxResources{
				Devices: []rspec.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}},
			},
		},
		Annotations: map[string]string{
			"io.kubernetes.cri.container-type": "container",
			"io.kubernetes.cri.container-name": ctr.GetName(),
		},
	}
	if args := ctr.GetArgs(); len(args) != 0 {
		spec.Process.Args = append([]string(nil), args...)
	}
	spec.Process.Env = append(spec.Process.Env, ctr.GetEnv()...)
	for _, m := range ctr.GetMounts() {
		spec.Mounts = append(spec.Mounts, m.ToOCI(nil))
	}
	for _, d := range ctr.GetLinux().GetDevices() {
		dev := d.ToOCI()
		spec.Linux.Devices = append(spec.Linux.Devices, dev)
		spec.Linux.Resources.Devices = append(spec.Linux.Resources.Devices, rspec.LinuxDeviceCgroup{
			Allow: true, Type: dev.Type, Major: &dev.Major, Minor: &dev.Minor, Access: "rwm"})
	}
	if h := ctr.GetHooks(); h != nil {
		spec.Hooks = &rspec.Hooks{
			//lint:ignore SA1019 NRI has the stage, and runtimes run it.
			Prestart: ociHooks(h.GetPrestart()), CreateRuntime: ociHooks(h.GetCreateRuntime()),
			CreateContainer: ociHooks(h.GetCreateContainer()), StartContainer: ociHooks(h.GetStartContainer()),
			Poststart: ociHooks(h.GetPoststart()), Poststop: ociHooks(h.GetPoststop()),
		}
	}
	return spec
}

func ociHooks(hooks []*api.Hook) []rspec.Hook {
	var out []rspec.Hook
	for _, h := range hooks {
		out = append(out, h.ToOCI())
	}
	return out
}

func baseMounts() []rspec.Mount {
	return []rspec.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts",
			Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
		{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
		{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup",
			Options: []string{"nosuid", "noexec", "nodev", "relatime", "ro"}},
	}
}
