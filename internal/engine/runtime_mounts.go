// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"strings"

	"github.com/jackfield/jackfield/internal/base/mountopt"
	"github.com/jackfield/jackfield/internal/edit"
)

// runtimeFileSystems are the destinations at which containerd and CRI-O mount a file system of their own, and no bind
// mount, into containers (OCI Runtime Specification, "Default Filesystems").
var runtimeFileSystems = []string{"/dev", "/dev/mqueue", "/dev/pts", "/dev/shm", "/proc", "/run", "/sys",
	"/sys/fs/cgroup", "/tmp", "/var/tmp"}

// runtimeFiles are the destinations of the runtimes' bind mounts.
var runtimeFiles = []string{"/dev/shm", "/etc/hostname", "/etc/hosts", "/etc/resolv.conf", "/run/.containerenv"}

// isRuntimeMount reports whether the runtime added a mount that nobody requested. Its files are in a directory named
// for the sandbox or the container. Containers of one pod can share the files of another sandbox: containerd has them
// below io.containerd.grpc.v1.cri/sandboxes, CRI-O below overlay-containers. A pod's author who mounts such a path
// there loses only that mount, to a device that the pod requests.
func isRuntimeMount(req *Request, m *edit.Mount) bool {
	if !mountopt.IsBind(m.Type, m.Options) {
		return slices.Contains(runtimeFileSystems, edit.Clean(m.Destination))
	}
	if hasDirectory(m.Source, req.SandboxID) || hasDirectory(m.Source, req.ContainerID) {
		return true
	}
	destination := edit.Clean(m.Destination)
	if m.Source == "/dev/shm" && destination == "/dev/shm" { // of a pod that shares the host's IPC namespace
		return true
	}
	return slices.Contains(runtimeFiles, destination) && (strings.Contains(m.Source, "/overlay-containers/") ||
		strings.Contains(m.Source, "/io.containerd.grpc.v1.cri/sandboxes/"))
}

// hasDirectory reports whether a component of a path is name. An empty name is no component.
func hasDirectory(p, name string) bool {
	return name != "" && slices.Contains(strings.Split(p, "/"), name)
}
