// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"cmp"
	"fmt"
	"path/filepath"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/deliver/sockaccess"
	"github.com/jackfield/jackfield/internal/deliver/sockdir"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// hostSockets opens the sockets and directories below socket roots that containers get.
type hostSockets struct {
	host    hostfs.Root
	records *records
	dirs    *sockdir.Dirs
	rights  *sockaccess.Rights
	size    uint64 // Options.DirectorySize
}

func newHostSockets(rs *records, size uint64) *hostSockets {
	return &hostSockets{host: rs.host, records: rs, dirs: openDirs(rs.host, rs.hostDir, rs.owner),
		rights: openRights(rs.host, nodeDir(rs.hostDir, rs.owner)), size: size}
}

// holder returns the sandbox as the holder of this store's claims.
func (h *hostSockets) holder(sandboxID string) sockdir.Holder {
	return sockdir.Holder{Sandbox: sandboxID, Adapter: cmp.Or(h.records.owner, sockdir.NRI), StateDir: h.records.hostDir}
}

// hold marks the sandbox's record and claims sockets of the host for the sandbox.
func (h *hostSockets) hold(sandboxID string, sockets []edit.Socket) error {
	if len(sockets) == 0 {
		return nil
	}
	if err := h.records.markClaimed(sandboxID); err != nil {
		return err
	}
	paths := make([]string, len(sockets))
	for i := range sockets {
		paths[i] = sockets[i].HostPath()
	}
	held, err := h.dirs.HoldSockets(paths, h.holder(sandboxID))
	if err != nil {
		return edit.WithOrigin(sockets[held].From, err)
	}
	return nil
}

// makeDir claims a directory for the sandbox, creates it if it is missing, and opens it.
func (h *hostSockets) makeDir(sandboxID string, d *edit.SocketDir) (fd int, err error) {
	if fd, err = h.createDir(sandboxID, d); err != nil {
		return -1, edit.WithOrigin(d.From, fmt.Errorf("create socket directory %q: %w", filepath.Join(d.Root, d.Rel), err))
	}
	return fd, nil
}

// createDir creates one directory of a sandbox at a time.
func (h *hostSockets) createDir(sandboxID string, d *edit.SocketDir) (fd int, err error) {
	lock, err := openLocked(h.records.sandboxDir(sandboxID), unix.O_DIRECTORY, unix.LOCK_EX)
	if err != nil {
		return -1, err
	}
	defer unix.Close(lock)
	if err := h.records.markClaimed(sandboxID); err != nil {
		return -1, err
	}
	return h.dirs.Create(h.holder(sandboxID), d, h.size)
}

// open opens the socket that is at its path now, below its root, and checks it on the descriptor.
func (h *hostSockets) open(k *edit.Socket) (int, error) {
	fd, err := sockdir.OpenBelowRoot(h.host, k.Root, k.Rel, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		err = errdefs.ErrInvalidArgument.WithMessage(
			fmt.Sprintf("%q is a %s: must be a socket", k.HostPath(), hostfs.TypeName(st.Mode)))
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// openFor opens a socket that the sandbox holds, and grants the container's user access.
func (h *hostSockets) openFor(c *edit.Container, k *edit.Socket) (int, error) {
	fd, err := h.open(k)
	if errdefs.IsNotFound(err) {
		err = fmt.Errorf("%w; the vswitch has not created this socket yet: check its port", err)
	}
	if err != nil {
		return -1, err
	}
	request := sockaccess.Request{Container: h.records.name(c.SandboxID, c.ID), Access: &k.Access}
	if err := h.rights.Grant(k.HostPath(), fd, []sockaccess.Request{request}); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// sweepClaims removes this store's claims of sandboxes that it has no record of. Only a crash
// or a lost record leaves such claims.
func (h *hostSockets) sweepClaims() error {
	own := h.holder("")
	return h.dirs.Release(func(o sockdir.Holder) bool {
		return o.Adapter == own.Adapter && o.StateDir == own.StateDir && !h.records.hasSandbox(o.Sandbox)
	})
}

// SocketDirFinder returns the function that finds the relation of a sandbox to a directory below a socket root.
// stateDir and owner are those of the store that will deliver the directory.
func SocketDirFinder(host hostfs.Root, stateDir, owner string,
) func(sandboxID, root, rel string) (edit.DirState, error) {
	return openDirs(host, stateDir, owner).FindState
}

// openDirs returns the directories below socket roots, whose claims all adapters of a node share.
func openDirs(host hostfs.Root, stateDir, owner string) *sockdir.Dirs {
	return sockdir.New(host, sockdir.ClaimsDir(nodeDir(stateDir, owner)))
}
