// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// AccessMethod is how a container's user is granted access to a socket of the host.
type AccessMethod string

// No method uses the mode bits of other users: a socket that one container may use is not for
// every container.
const (
	ByACL   AccessMethod = "acl"   // an entry in the socket's ACL; ByGroup on a file system without ACLs
	ByGroup AccessMethod = "group" // the user's group becomes the socket's group
	ByOwner AccessMethod = "owner" // the user becomes the socket's owner
)

// Access is the access of a container's user to a socket of the host. The zero value leaves the
// socket unchanged.
type Access struct {
	Method AccessMethod `json:"way,omitempty"`
	User   *User        `json:"user,omitempty"`  // nil when it is unknown
	Label  string       `json:"label,omitempty"` // SELinux label, where SELinux is on; "" keeps the socket's
}

// User is a user and a group of the host.
type User struct {
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`
}

const (
	aclXattr      = "system.posix_acl_access"
	connectRights = 6 // connect(2) needs the permission to write
	createRights  = 7 // creating a file in a directory needs all three
)

// needsGrant reports whether the user needs a grant: root does not.
func (a *Access) needsGrant() bool { return a.Method != "" && a.User != nil && a.User.UID != 0 }

// isOwner reports whether the user owns a file and has these permissions as its owner.
func (a *Access) isOwner(st *unix.Stat_t, rights uint16) bool {
	return st.Uid == a.User.UID && uint16(st.Mode>>6)&rights == rights
}

// setLabel sets the SELinux label of the file of a descriptor, if one is configured and SELinux
// is on.
func (a *Access) setLabel(fd int, what string) error {
	if a.Label == "" || !hostfs.SELinuxEnabled() {
		return nil
	}
	if err := hostfs.SetSELinuxLabel(fd, a.Label); err != nil {
		return fmt.Errorf("set the %s's SELinux label to %q: %w", what, a.Label, err)
	}
	return nil
}

// grantDirectory grants the user access to the directory of a descriptor. The directory is removed with
// the sandbox, so nothing is recorded and nobody inherits the access.
func (a *Access) grantDirectory(fd int, st *unix.Stat_t, what string, rights uint16) error {
	if err := a.setLabel(fd, what); err != nil || !a.needsGrant() || a.isOwner(st, rights) {
		return err
	}
	link := hostfs.DescriptorPath(fd)
	switch a.Method {
	case ByACL:
		err := addACLUser(link, a.User.UID, rights)
		if errors.Is(err, unix.EPERM) && uint16(st.Mode)&rights == rights {
			// This process may not change it, as under rootless Podman, and any user may use it.
			return nil
		}
		if !errors.Is(err, unix.EOPNOTSUPP) {
			if err != nil {
				return fmt.Errorf("grant user %d access to the %s by its ACL: %w", a.User.UID, what, err)
			}
			return nil
		}
		fallthrough
	case ByGroup:
		return changeOwner(fd, link, st, what, -1, int(a.User.GID), uint32(rights)<<3)
	case ByOwner:
		return changeOwner(fd, link, st, what, int(a.User.UID), -1, uint32(rights)<<6)
	}
	return nil
}

// changeOwner changes the owner or group of a socket or directory, and adds permissions for it.
func changeOwner(fd int, link string, st *unix.Stat_t, what string, uid, gid int, mode uint32) error {
	if gid == 0 {
		return errdefs.ErrFailedPrecondition.WithMessage(fmt.Sprintf("grant the container's user access to the %s: its group is 0, root's own group on the host; use access acl or owner, or run the container in another group", what))
	}
	if uid >= 0 && st.Uid != uint32(uid) || gid >= 0 && st.Gid != uint32(gid) {
		if err := unix.Fchownat(fd, "", uid, gid, unix.AT_EMPTY_PATH); err != nil {
			return fmt.Errorf("change the owner of the %s to user %d, group %d: %w", what, uid, gid, err)
		}
	}
	if st.Mode&mode == mode {
		return nil
	}
	if err := unix.Chmod(link, st.Mode&0o7777|mode); err != nil {
		return fmt.Errorf("grant user %d, group %d access to the %s: %w", uid, gid, what, err)
	}
	return nil
}
