// SPDX-License-Identifier: Apache-2.0

package node

import "os/exec"

// systemPath is PATH of a runtime.
const systemPath = "/usr/sbin:/usr/bin:/sbin:/bin"

const (
	// mountUnified is a script that replaces the mounts of cgroups by one of version 2.
	mountUnified = "umount -l /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup"
	// hideUnified is a script that hides version 2 of cgroups on a machine with both versions, where crun does not run.
	hideUnified = "if mountpoint -q /sys/fs/cgroup/unified; then umount -l /sys/fs/cgroup/unified; fi"
)

// useCgroupVersion makes a command and its children see one version of cgroups: version 2 if unified is set, or else
// version 1. They run in a mount namespace in which only /sys is private. All other mounts propagate in both
// directions: containers need mounts that are made later outside, and the test needs the namespaces that CRI-O mounts.
func useCgroupVersion(cmd *exec.Cmd, unified bool) {
	script := hideUnified
	if unified {
		script = mountUnified
	}
	args := append([]string{cmd.Path}, cmd.Args[1:]...)
	*cmd = exec.Cmd{Env: cmd.Env, Path: "/usr/bin/unshare", Args: append([]string{"unshare", "--mount",
		"--propagation", "unchanged", "sh", "-c", "mount --make-rprivate /sys && " + script + " && exec \"$@\"", "sh"},
		args...)}
}
