// SPDX-License-Identifier: Apache-2.0

package sockdir

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// RootRisk is a risk of how socket roots are mounted. A container can write in the directories
// that are created for it below them.
type RootRisk struct {
	Roots  []string
	Found  string
	Remedy string
}

const (
	ownFileSystem = "mount a file system of its own there, for example tmpfs with nosuid,nodev,noexec,size=64m, " +
		"or set sockets.directorySize, for example to 1Mi"
	notPropagated = "sockets.directorySize has no effect there, since mounts do not reach the host: " +
		"mount the socket root with mountPropagation Bidirectional"
)

// CheckRootMounts returns the socket roots on which a container can leave set-uid programs and
// device nodes for users of the host, and those on the file system of the state directory,
// which a container can fill. It skips roots that cannot be opened. With bounded it also skips
// roots where each directory gets a file system of its own.
func CheckRootMounts(host hostfs.Root, stateDir string, roots []string, bounded bool) []RootRisk {
	var open, shared []string
	state, _, stateErr := mountOf(host, stateDir)
	remedy := ownFileSystem
	if bounded {
		remedy = notPropagated
	}
	for _, root := range roots {
		if reached, err := mountsReachHost(host.Path(host.Canonical(root))); bounded && reached && err == nil {
			continue
		}
		device, flags, err := mountOf(host, root)
		if err != nil {
			continue
		}
		if flags&(unix.ST_NOSUID|unix.ST_NODEV) != unix.ST_NOSUID|unix.ST_NODEV {
			open = append(open, root)
		}
		if stateErr == nil && device == state {
			shared = append(shared, root)
		}
	}
	var risks []RootRisk
	if len(open) > 0 {
		risks = append(risks, RootRisk{open, fmt.Sprintf("%s not mounted nosuid,nodev: users of the host can run set-uid "+
			"programs, and open device nodes, that a container leaves in a directory of its sockets", listRoots(open)), remedy})
	}
	if len(shared) > 0 {
		risks = append(risks, RootRisk{shared, fmt.Sprintf("%s on the file system of the state directory %s: "+
			"a container that fills the directory of its sockets keeps all others from being created with sockets",
			listRoots(shared), stateDir), remedy})
	}
	return risks
}

// listRoots begins the sentence of a warning about socket roots.
func listRoots(roots []string) string {
	if len(roots) == 1 {
		return "socket root " + roots[0] + " is"
	}
	return "socket roots " + strings.Join(roots, ", ") + " are"
}

// mountOf returns the device of a directory's file system, and the flags of its mount.
func mountOf(host hostfs.Root, dir string) (device uint64, flags int64, err error) {
	fd, err := host.OpenFD(dir, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return 0, 0, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, 0, err
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return 0, 0, err
	}
	return uint64(st.Dev), int64(fs.Flags), nil
}

// mountsReachHost reports whether mounts made in a directory propagate.
func mountsReachHost(dir string) (bool, error) {
	around, on, err := hostfs.FindMount(dir)
	if on != nil {
		around = *on
	}
	return around.Shared, err
}
