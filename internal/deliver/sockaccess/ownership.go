// SPDX-License-Identifier: Apache-2.0

package sockaccess

import (
	"errors"
	"fmt"
	"os"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

const (
	connectRights = 6 // connect(2) needs the permission to write
	createRights  = 7 // creating a file in a directory needs all three
)

// ownership is the owner of a file, and the permissions of owner, group and others.
type ownership struct {
	UID  uint32 `json:"uid"`
	GID  uint32 `json:"gid"`
	Mode uint32 `json:"mode"` // permission bits only
}

// isOwner reports whether a user owns the file and has these permissions as its owner.
func (o ownership) isOwner(u *edit.User, rights uint32) bool {
	return o.UID == u.UID && o.Mode>>6&rights == rights
}

// isUsable reports whether a failed grant is unnecessary: this process must not change the file, like under rootless
// Podman, and every user has these permissions.
func (o ownership) isUsable(rights uint32, err error) bool {
	return errors.Is(err, unix.EPERM) && o.Mode&rights == rights
}

// withAccess returns an ownership with which a user has access, as the owner or by the group.
func (o ownership) withAccess(u *edit.User, m edit.AccessMethod, object string, rights uint32) (ownership, error) {
	if m == edit.ByOwner {
		return ownership{u.UID, o.GID, o.Mode | rights<<6}, nil
	}
	if u.GID == 0 {
		return o, errdefs.ErrFailedPrecondition.WithMessage(fmt.Sprintf("grant the container's user access to the %s: "+
			"its group is 0, root's own group on the host; use access acl or owner, or run the container in another group",
			object))
	}
	return ownership{o.UID, u.GID, o.Mode | rights<<3}, nil
}

// setOwnership changes the ownership of the file of a descriptor. It removes permissions before it changes the owner,
// and adds permissions afterwards, so that neither owner or group ever has the permissions of the other.
func setOwnership(fd int, object string, now, next ownership) (err error) {
	link, kept := hostfs.DescriptorPath(fd), now.Mode&next.Mode
	if kept != now.Mode {
		err = unix.Chmod(link, kept)
	}
	if err == nil && (now.UID != next.UID || now.GID != next.GID) {
		err = unix.Fchownat(fd, "", int(next.UID), int(next.GID), unix.AT_EMPTY_PATH)
	}
	if err == nil && kept != next.Mode {
		err = unix.Chmod(link, next.Mode)
	}
	if err != nil {
		return fmt.Errorf("change the %s to user %d, group %d, mode %04o: %w", object, next.UID, next.GID, next.Mode, err)
	}
	return nil
}

// GrantDirectory grants the user permission to create files in the directory of a descriptor. The directory is removed
// with the sandbox, so nothing is recorded and nobody inherits the access.
func GrantDirectory(a *edit.Access, fd int) error {
	q := Request{Access: a}
	_, now, err := inspectFile(fd)
	if err != nil || !q.isGrant() || now.isOwner(a.User, createRights) {
		return err
	}
	method := a.Method
	if method == edit.ByACL {
		err := addACLUser(hostfs.DescriptorPath(fd), a.User.UID, createRights)
		if err == nil || now.isUsable(createRights, err) {
			return nil
		}
		if !errors.Is(err, unix.EOPNOTSUPP) {
			return fmt.Errorf("grant user %d access to the directory by its ACL: %w", a.User.UID, err)
		}
		method = edit.ByGroup
	}
	next, err := now.withAccess(a.User, method, "directory", createRights)
	if err != nil {
		return err
	}
	return setOwnership(fd, "directory", now, next)
}

// fileIdentity identifies a file, also after its inode number was reused.
type fileIdentity struct {
	hostfs.FileID
	Born int64 `json:"born,omitempty"` // nanoseconds since 1970, 0 where the file system has no creation time
}

// inspectFile returns the identity and the ownership of an open file.
func inspectFile(fd int) (fileIdentity, ownership, error) {
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st); err != nil {
		return fileIdentity{}, ownership{}, os.NewSyscallError("statx", err)
	}
	id := fileIdentity{FileID: hostfs.FileID{Device: unix.Mkdev(st.Dev_major, st.Dev_minor), Inode: st.Ino}}
	if st.Mask&unix.STATX_BTIME != 0 {
		id.Born = st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
	}
	return id, ownership{st.Uid, st.Gid, uint32(st.Mode) & 0o7777}, nil
}
