// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Way is how a container's user is let at a socket that the host side made.
type Way string

// The ways. None is by the mode of others: what one container may use, another may
// not.
const (
	ByACL   Way = "acl"   // an entry of the socket's ACL; ByGroup where there are no ACLs
	ByGroup Way = "group" // the socket is given to the user's group
	ByOwner Way = "owner" // the socket is given to the user
)

// Access is how a container's user gets at a socket that the host side made. The
// zero value leaves the socket as it is.
type Access struct {
	Way   Way    `json:"way,omitempty"`
	User  *User  `json:"user,omitempty"`  // nil when nobody says who it is
	Label string `json:"label,omitempty"` // SELinux label, where SELinux is on; "" leaves it
}

// User is a user and a group of the host.
type User struct {
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`
}

const (
	aclXattr     = "system.posix_acl_access"
	selinuxXattr = "security.selinux"
	toConnect    = 6 // connecting to a socket takes the right to write
	toMake       = 7 // as making a file in a directory does, and going there
)

// linkOf is the path that leads to what a descriptor is of: an O_PATH descriptor is no file, and the link to it is.
func linkOf(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// isGranted reports whether the user is one to whom rights are given: not root, who needs none.
func (a *Access) isGranted() bool { return a.Way != "" && a.User != nil && a.User.UID != 0 }

// isOwner reports whether the user owns a file, and has these rights as such.
func (a *Access) isOwner(st *unix.Stat_t, rights uint16) bool {
	return st.Uid == a.User.UID && uint16(st.Mode>>6)&rights == rights
}

// setLabel sets the SELinux label of what a descriptor is of, where there is to be one.
func (a *Access) setLabel(fd int, what string) error {
	if a.Label == "" {
		return nil
	}
	if err := label(linkOf(fd), a.Label); err != nil {
		return fmt.Errorf("set the %s's SELinux label to %q: %w", what, a.Label, err)
	}
	return nil
}

// let gives the user rights to the directory of a descriptor, which is removed with the sandbox, so that nobody inherits them.
func (a *Access) let(fd int, st *unix.Stat_t, what string, rights uint16) error {
	if err := a.setLabel(fd, what); err != nil || !a.isGranted() || a.isOwner(st, rights) {
		return err
	}
	link := linkOf(fd)
	switch a.Way {
	case ByACL:
		err := allow(link, a.User.UID, rights)
		if errors.Is(err, unix.EPERM) && uint16(st.Mode)&rights == rights {
			// Not this user's to change, as under rootless Podman, and anyone's to use.
			return nil
		}
		if !errors.Is(err, unix.EOPNOTSUPP) {
			if err != nil {
				return fmt.Errorf("let user %d at the %s by its ACL: %w", a.User.UID, what, err)
			}
			return nil
		}
		fallthrough
	case ByGroup:
		return give(fd, link, st, what, -1, int(a.User.GID), uint32(rights)<<3)
	case ByOwner:
		return give(fd, link, st, what, int(a.User.UID), -1, uint32(rights)<<6)
	}
	return nil
}

// give hands a socket or directory to a user or group, with the rights that go with it.
func give(fd int, link string, st *unix.Stat_t, what string, uid, gid int, mode uint32) error {
	if gid == 0 {
		return fmt.Errorf("let the container's user at the %s: its group is 0, the host's own; use access acl or owner, or give the container another group: %w", what, errdefs.ErrFailedPrecondition)
	}
	if uid >= 0 && st.Uid != uint32(uid) || gid >= 0 && st.Gid != uint32(gid) {
		if err := unix.Fchownat(fd, "", uid, gid, unix.AT_EMPTY_PATH); err != nil {
			return fmt.Errorf("give the %s to user %d, group %d: %w", what, uid, gid, err)
		}
	}
	if st.Mode&mode == mode {
		return nil
	}
	if err := unix.Chmod(link, st.Mode&0o7777|mode); err != nil {
		return fmt.Errorf("let user %d, group %d at the %s: %w", uid, gid, what, err)
	}
	return nil
}

func label(link, want string) error {
	if _, err := os.Stat("/sys/fs/selinux/enforce"); err != nil {
		return nil // SELinux is off
	}
	have := make([]byte, 256)
	if n, err := unix.Getxattr(link, selinuxXattr, have); err == nil && string(bytes.TrimRight(have[:n], "\x00")) == want {
		return nil
	}
	return unix.Setxattr(link, selinuxXattr, []byte(want), 0)
}

// aclEntry is an entry of a POSIX ACL as the kernel has it (linux/posix_acl_xattr.h).
type aclEntry struct {
	Tag, Perm uint16
	ID        uint32
}

const (
	aclVersion  = 2
	aclUserObj  = 0x01
	aclUser     = 0x02
	aclGroupObj = 0x04
	aclMask     = 0x10
	aclOther    = 0x20
	aclNoID     = ^uint32(0)
	maxXattr    = 64 << 10 // XATTR_SIZE_MAX of linux/limits.h
)

// allow adds an entry for a user to a file's ACL.
func allow(link string, uid uint32, rights uint16) error {
	acl, err := readACL(link)
	if err != nil {
		return err
	}
	next, changed := allowed(acl, uid, rights)
	if !changed {
		return nil
	}
	return writeACL(link, next)
}

func writeACL(link string, acl []aclEntry) error {
	buf, err := encodeACL(acl)
	if err != nil {
		return err
	}
	return unix.Setxattr(link, aclXattr, buf, 0)
}

// readACL reads a file's ACL; one that has none has the one that its mode says.
func readACL(link string) ([]aclEntry, error) {
	buf := make([]byte, 4096)
	n, err := unix.Getxattr(link, aclXattr, buf)
	if errors.Is(err, unix.ERANGE) {
		buf = make([]byte, maxXattr)
		n, err = unix.Getxattr(link, aclXattr, buf)
	}
	if errors.Is(err, unix.ENODATA) {
		var st unix.Stat_t
		if err := unix.Stat(link, &st); err != nil {
			return nil, err
		}
		of := func(shift int) uint16 { return uint16(st.Mode>>shift) & 7 }
		return []aclEntry{{aclUserObj, of(6), aclNoID}, {aclGroupObj, of(3), aclNoID}, {aclOther, of(0), aclNoID}}, nil
	}
	if err != nil {
		return nil, err
	}
	return decodeACL(buf[:n])
}

func encodeACL(acl []aclEntry) ([]byte, error) {
	return binary.Append(binary.LittleEndian.AppendUint32(nil, aclVersion), binary.LittleEndian, acl)
}

func decodeACL(buf []byte) ([]aclEntry, error) {
	if len(buf) < 4 || binary.LittleEndian.Uint32(buf) != aclVersion || (len(buf)-4)%8 != 0 {
		return nil, fmt.Errorf("the ACL has %d bytes and is of no known version: %w", len(buf), errdefs.ErrNotImplemented)
	}
	acl := make([]aclEntry, (len(buf)-4)/8)
	_, err := binary.Decode(buf[4:], binary.LittleEndian, acl)
	return acl, err
}

// allowed is an ACL in which a user has some rights, its entries in the kernel's
// order. Where the mask is in the way and is widened, nobody else gets more by it
// than before.
func allowed(acl []aclEntry, uid uint32, rights uint16) (_ []aclEntry, changed bool) {
	mask, user := -1, -1
	for i, e := range acl {
		switch {
		case e.Tag == aclMask:
			mask = i
		case e.Tag == aclUser && e.ID == uid:
			user = i
		}
	}
	if user >= 0 && mask >= 0 && acl[user].Perm&acl[mask].Perm&rights == rights {
		return acl, false
	}
	limit := uint16(7)
	if mask >= 0 {
		limit = acl[mask].Perm
	}
	var out []aclEntry
	added := false
	union := rights
	add := func() {
		if !added {
			added = true
			out = append(out, aclEntry{aclUser, rights, uid})
		}
	}
	for _, e := range acl {
		switch e.Tag {
		case aclUserObj, aclOther:
		case aclMask:
			continue
		case aclUser:
			if e.ID == uid {
				continue
			}
			if e.ID > uid {
				add()
			}
			fallthrough
		default:
			if e.Tag != aclUser {
				add()
			}
			e.Perm &= limit
			union |= e.Perm
		}
		if e.Tag == aclOther {
			add()
			out = append(out, aclEntry{aclMask, union, aclNoID})
		}
		out = append(out, e)
	}
	return out, true
}

// permissionsOf are those of a user's own entry, nil where there is none.
func permissionsOf(acl []aclEntry, uid uint32) *uint16 {
	for _, e := range acl {
		if e.Tag == aclUser && e.ID == uid {
			return &e.Perm
		}
	}
	return nil
}

// withdrawn is an ACL without what was granted to a user. An entry that somebody changed since stays. Nobody else gets more by it than before; without any
// entry of a user or group by name it says no more than a mode, as before the first was added.
func withdrawn(acl []aclEntry, granted aclRight) []aclEntry {
	var out []aclEntry
	limit, union, named, found := uint16(7), uint16(0), false, false
	for _, e := range acl {
		if e.Tag == aclMask {
			limit = e.Perm
		}
	}
	for _, e := range acl {
		if e.Tag == aclUser && e.ID == granted.UID && e.Perm == toConnect {
			found = true
			if granted.Before == nil {
				continue
			}
			e.Perm = *granted.Before
		}
		if e.Tag != aclUserObj && e.Tag != aclOther && e.Tag != aclMask {
			union |= e.Perm
			named = named || e.Tag != aclGroupObj
		}
		out = append(out, e)
	}
	if !found {
		return acl
	}
	for i := range out {
		switch {
		case out[i].Tag == aclMask:
			out[i].Perm = union & limit
		case out[i].Tag == aclGroupObj && !named:
			out[i].Perm &= limit
		}
	}
	if !named {
		out = slices.DeleteFunc(out, func(e aclEntry) bool { return e.Tag == aclMask })
	}
	return out
}
