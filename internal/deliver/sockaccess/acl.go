// SPDX-License-Identifier: Apache-2.0

package sockaccess

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// aclEntry is an entry of a POSIX ACL in the kernel's format (linux/posix_acl_xattr.h).
type aclEntry struct {
	Tag, Perm uint16
	ID        uint32
}

const (
	aclXattr    = "system.posix_acl_access"
	aclVersion  = 2
	aclUserObj  = 0x01
	aclUser     = 0x02
	aclGroupObj = 0x04
	aclMask     = 0x10
	aclOther    = 0x20
	aclNoID     = ^uint32(0)
	maxXattr    = 64 << 10 // XATTR_SIZE_MAX of linux/limits.h
)

// addACLUser adds an entry for a user to a file's ACL.
func addACLUser(link string, uid uint32, rights uint16) error {
	acl, err := readACL(link)
	if err != nil {
		return err
	}
	next, changed := aclWithUser(acl, uid, rights)
	if !changed {
		return nil
	}
	return writeACL(link, next)
}

// writeACL replaces a file's ACL. link is the path of a descriptor, so that no other file is changed.
func writeACL(link string, acl []aclEntry) error {
	buf, err := encodeACL(acl)
	if err != nil {
		return err
	}
	return unix.Setxattr(link, aclXattr, buf, 0)
}

// readACL reads a file's ACL. For a file without one it returns the entries of the mode bits.
func readACL(link string) ([]aclEntry, error) {
	buf := make([]byte, maxXattr)
	n, err := unix.Getxattr(link, aclXattr, buf)
	if errors.Is(err, unix.ENODATA) {
		var st unix.Stat_t
		if err := unix.Stat(link, &st); err != nil {
			return nil, err
		}
		bits := func(shift int) uint16 { return uint16(st.Mode>>shift) & 7 }
		return []aclEntry{{aclUserObj, bits(6), aclNoID}, {aclGroupObj, bits(3), aclNoID}, {aclOther, bits(0), aclNoID}}, nil
	}
	if err != nil {
		return nil, err
	}
	return decodeACL(buf[:n])
}

func encodeACL(acl []aclEntry) ([]byte, error) {
	return binary.Append(binary.LittleEndian.AppendUint32(nil, aclVersion), binary.LittleEndian, acl)
}

// decodeACL decodes an ACL: a version, and entries of 8 bytes in little endian.
func decodeACL(buf []byte) ([]aclEntry, error) {
	if len(buf) < 4 || binary.LittleEndian.Uint32(buf) != aclVersion || (len(buf)-4)%8 != 0 {
		return nil, errdefs.ErrNotImplemented.WithMessage(
			fmt.Sprintf("the ACL has %d bytes and an unknown version", len(buf)))
	}
	acl := make([]aclEntry, (len(buf)-4)/8)
	_, err := binary.Decode(buf[4:], binary.LittleEndian, acl)
	return acl, err
}

// aclWithUser returns an ACL in which a user has some permissions. If the mask has to be widened for that, the
// permissions of all other entries are limited to the old mask, so that nobody else gets more than before.
func aclWithUser(acl []aclEntry, uid uint32, rights uint16) (_ []aclEntry, changed bool) {
	if have := userPermissions(acl, uid); have != nil && *have&rights == rights {
		return acl, false
	}
	limit := maskOf(acl)
	var out []aclEntry
	union := rights
	for _, e := range acl {
		switch {
		case e.Tag == aclMask, e.Tag == aclUser && e.ID == uid:
			continue
		case e.Tag != aclUserObj && e.Tag != aclOther:
			e.Perm &= limit
			union |= e.Perm
		}
		out = append(out, e)
	}
	return sortACL(append(out, aclEntry{aclUser, rights, uid}, aclEntry{aclMask, union, aclNoID})), true
}

// sortACL sorts an ACL in the kernel's order.
func sortACL(acl []aclEntry) []aclEntry {
	slices.SortFunc(acl, func(a, b aclEntry) int {
		return cmp.Or(cmp.Compare(a.Tag, b.Tag), cmp.Compare(a.ID, b.ID))
	})
	return acl
}

// maskOf returns the permissions of the mask, which limits those of named users and of groups.
func maskOf(acl []aclEntry) uint16 {
	for _, e := range acl {
		if e.Tag == aclMask {
			return e.Perm
		}
	}
	return 7
}

// userPermissions returns the permissions of a user's entry, limited by the mask, nil for no entry.
func userPermissions(acl []aclEntry, uid uint32) *uint16 {
	for _, e := range acl {
		if e.Tag == aclUser && e.ID == uid {
			e.Perm &= maskOf(acl)
			return &e.Perm
		}
	}
	return nil
}

// aclWithoutGrant returns an ACL without a grant to a user. An entry that was changed since then stays. Nobody else
// gets more than before. An ACL without an entry for a named user or group has no mask, so that the file has only its
// mode bits again.
func aclWithoutGrant(acl []aclEntry, granted aclGrant) []aclEntry {
	isGrant := func(e aclEntry) bool { return e.Tag == aclUser && e.ID == granted.UID && e.Perm == connectRights }
	if !slices.ContainsFunc(acl, isGrant) {
		return acl
	}
	var out []aclEntry
	limit := maskOf(acl)
	union, named := uint16(0), false
	for _, e := range acl {
		switch {
		case e.Tag == aclMask, isGrant(e) && granted.Before == nil:
			continue
		case isGrant(e):
			e.Perm = *granted.Before
		}
		if e.Tag != aclUserObj && e.Tag != aclOther {
			union |= e.Perm
			named = named || e.Tag != aclGroupObj
		}
		out = append(out, e)
	}
	if named {
		return sortACL(append(out, aclEntry{aclMask, union & limit, aclNoID}))
	}
	for i := range out {
		if out[i].Tag == aclGroupObj {
			out[i].Perm &= limit
		}
	}
	return out
}
