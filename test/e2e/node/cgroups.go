// SPDX-License-Identifier: Apache-2.0

package node

import "os/exec"

// systemPath is PATH of a runtime.
const systemPath = "/usr/sbin:/usr/bin:/sbin:/bin"

const (
	// onlyUnified is a script that mounts only version 2 of cgroups.
	onlyUnified = "umount -l /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup"
	// hideUnified is a script that hides version 2 of cgroups where the machine has both versions, with which crun does
	// not run.
	hideUnified = "if mountpoint -q /sys/fs/cgroup/unified; then umount -l /sys/fs/cgroup/unified; fi"
)

// showCgroups makes a command and its children see one version of cgroups. They run in a mount namespace in which only
// /sys is private: the container needs the mounts that others make later, and others need the namespaces that CRI-O
// mounts.
func showCgroups(cmd *exec.Cmd, unified bool) {
	script := hideUnified
	if unified {
		script = onlyUnified
	}
	args := append([]string{cmd.Path}, cmd.Args[1:]...)
	*cmd = exec.Cmd{Env: cmd.Env, Path: "/usr/bin/unshare", Args: append([]string{"unshare", "--mount",
		"--propagation", "unchanged", "sh", "-c", "mount --make-rprivate /sys && " + script + " && exec \"$@\"", "sh"},
		args...)}
}
