// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/deliver/sockdir"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/host/trust"
)

// Many processes can share a state directory: short-lived ones that stage and remove containers, and one, the
// rebinder, that rebinds the sockets of all of them. A shared state directory has in addition
//
//	<state>/ready/<containerID>   the sandbox's ID, once all of the container's mounts exist
//	<state>/lock                  locked (flock) by the process that mounts or unmounts
//	<state>/keeper                locked by the rebinder for as long as it runs
//
// The kernel releases the locks of a process that ends.

const (
	lockFile     = "lock"
	rebinderFile = "keeper"
)

// HookOwner is the owner of containers that the OCI hook stages.
const HookOwner = sockdir.Hook

// InjectOwner is the owner of containers that "jackfield inject" stages.
const InjectOwner = sockdir.Inject

// InjectDir returns the state directory of "jackfield inject" in that of a node.
func InjectDir(stateDir string) string { return filepath.Join(stateDir, "inject") }

// HookDir returns the shared state directory of the OCI hook in that of a node. It is apart from the state of the NRI
// plugin, which removes every container that its runtime does not know.
func HookDir(stateDir string) string { return filepath.Join(stateDir, "hook") }

func readyDir(stateDir string) string { return filepath.Join(stateDir, "ready") }

// createStateDir creates a store's directories, unless the store creates nothing, and checks them.
func createStateDir(rs *records, opts Options) error {
	creates := !opts.NoCreate || opts.Watch
	if _, err := os.Lstat(rs.dir); creates && errors.Is(err, fs.ErrNotExist) {
		// Vswitches of other users have sockets below the same parents.
		parent, err := rs.host.MakeDir(rs.hostDir, 0o755)
		if err != nil {
			return creationError(rs.hostDir, err)
		}
		parent.Close()
	}
	claims := rs.host.Path(sockdir.ClaimsDir(nodeDir(rs.hostDir, opts.Owner)))
	owned := []string{rs.dir, edit.ContainersDir(rs.dir), rs.sandboxesDir(), claims}
	if opts.Shared {
		owned = append(owned, readyDir(rs.dir))
	}
	for _, d := range owned {
		if creates {
			if err := unix.Mkdir(d, privateDir); err != nil && !errors.Is(err, unix.EEXIST) {
				return creationError(d, err)
			}
		}
		if err := checkStateDir(d); err != nil && (creates || !errors.Is(err, unix.ENOENT)) {
			return err
		}
	}
	return nil
}

func creationError(dir string, err error) error {
	return fmt.Errorf(
		"create state directory %q: %w; create it (owner root, mode 0755), or set another stateDir", dir, err)
}

// checkStateDir refuses a path that is not a directory, and a directory that another user owns or can write.
func checkStateDir(dir string) error {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return fmt.Errorf("check state directory %q: %w", dir, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return errdefs.ErrPermissionDenied.WithMessage(fmt.Sprintf(
			"state directory %q is a %s: it must be a directory; remove it, or set another stateDir",
			dir, hostfs.TypeName(st.Mode)))
	}
	if fault := trust.Check(dir, &st, trust.Options{}); fault != nil {
		return fmt.Errorf("check state directory %w", fault)
	}
	return nil
}

// RebinderRunning reports whether a process runs that rebinds the sockets of a state directory.
func RebinderRunning(host hostfs.Root, stateDir string) bool {
	fd, err := openLocked(filepath.Join(host.Path(stateDir), rebinderFile), 0, unix.LOCK_SH|unix.LOCK_NB)
	if err == nil {
		unix.Close(fd)
	}
	return errors.Is(err, unix.EWOULDBLOCK)
}
