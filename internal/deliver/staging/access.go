// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

const (
	aclXattr      = "system.posix_acl_access"
	connectRights = 6 // connect(2) needs the permission to write
	createRights  = 7 // creating a file in a directory needs all three
)

// needsGrant reports whether the user needs a grant: root does not.
func needsGrant(a *edit.Access) bool { return a.Method != "" && a.User != nil && a.User.UID != 0 }

// isOwner reports whether the user owns a file and has these permissions as its owner.
func isOwner(a *edit.Access, now ownership, rights uint32) bool {
	return now.UID == a.User.UID && now.Mode>>6&rights == rights
}

// setSocketLabel sets the SELinux label of the socket of a descriptor, if one is configured and SELinux
// is on.
func setSocketLabel(a *edit.Access, fd int) error {
	if a.Label == "" || !hostfs.SELinuxEnabled() {
		return nil
	}
	if err := hostfs.SetSELinuxLabel(fd, a.Label); err != nil {
		return fmt.Errorf("set the socket's SELinux label to %q: %w", a.Label, err)
	}
	return nil
}

// mayUse reports whether a grant that failed is not needed: this process may not change the file, as
// under rootless Podman, and any user may use it.
func mayUse(now ownership, rights uint32, err error) bool {
	return errors.Is(err, unix.EPERM) && now.Mode&rights == rights
}

// grantCreate grants the user permission to create files in the directory of a descriptor. The
// directory is removed with the sandbox, so nothing is recorded and nobody inherits the access.
func grantCreate(a *edit.Access, fd int) error {
	_, now, err := inspectFile(fd)
	if err != nil || !needsGrant(a) || isOwner(a, now, createRights) {
		return err
	}
	method := a.Method
	if method == edit.ByACL {
		err := addACLUser(hostfs.DescriptorPath(fd), a.User.UID, createRights)
		if err == nil || mayUse(now, createRights, err) {
			return nil
		}
		if !errors.Is(err, unix.EOPNOTSUPP) {
			return fmt.Errorf("grant user %d access to the directory by its ACL: %w", a.User.UID, err)
		}
		method = edit.ByGroup
	}
	want, err := grantIn(a, now, method, "directory", createRights)
	if err != nil {
		return err
	}
	return setOwnership(fd, "directory", now, want)
}

// ownership is who owns a file, and what owner, group and others may do.
type ownership struct {
	UID  uint32 `json:"uid"`
	GID  uint32 `json:"gid"`
	Mode uint32 `json:"mode"` // permission bits only
}

// grantIn returns an ownership with which the user has access, as the owner or by the group.
func grantIn(a *edit.Access, now ownership, method edit.AccessMethod, what string, rights uint32) (ownership, error) {
	if method == edit.ByOwner {
		return ownership{a.User.UID, now.GID, now.Mode | rights<<6}, nil
	}
	if a.User.GID == 0 {
		return now, errdefs.ErrFailedPrecondition.WithMessage(fmt.Sprintf("grant the container's user access to the %s: its group is 0, root's own group on the host; use access acl or owner, or run the container in another group", what))
	}
	return ownership{now.UID, a.User.GID, now.Mode | rights<<3}, nil
}

// setOwnership changes who owns the file of a descriptor. Permissions that end do so before the owner
// changes, and new ones begin after it, so that no owner or group has those of the other.
func setOwnership(fd int, what string, now, want ownership) (err error) {
	link, kept := hostfs.DescriptorPath(fd), now.Mode&want.Mode
	if kept != now.Mode {
		err = unix.Chmod(link, kept)
	}
	if err == nil && (now.UID != want.UID || now.GID != want.GID) {
		err = unix.Fchownat(fd, "", int(want.UID), int(want.GID), unix.AT_EMPTY_PATH)
	}
	if err == nil && kept != want.Mode {
		err = unix.Chmod(link, want.Mode)
	}
	if err != nil {
		return fmt.Errorf("change the %s to user %d, group %d, mode %04o: %w", what, want.UID, want.GID, want.Mode, err)
	}
	return nil
}
