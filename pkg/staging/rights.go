// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// rightsRequest is one container's request for access.
type rightsRequest struct {
	record string
	access *Access
	from   string // file and field of the request, for messages
	err    error  // the result
}

// grantAccess grants a container's user access to the socket of a descriptor.
func (s *Store) grantAccess(sandboxID, containerID string, k *Socket, fd int, st *unix.Stat_t) error {
	if err := k.Access.setLabel(fd, "socket"); err != nil || !k.Access.needsGrant() {
		return err
	}
	request := []rightsRequest{{record: s.recordName(sandboxID, containerID), access: &k.Access}}
	if err := s.grantToAll(k, fd, st, request); err != nil {
		return err
	}
	return request[0].err
}

// grantToAll grants the users of several containers access to one socket. It does not change what
// is already as requested, so that it causes no event for the watchers of the socket.
func (s *Store) grantToAll(k *Socket, fd int, st *unix.Stat_t, requests []rightsRequest) error {
	f, err := s.openRights(k.hostPath())
	if err != nil {
		return err
	}
	defer f.lock.Close()
	id, err := identifyFile(fd)
	if err != nil {
		return err
	}
	if f.File != id {
		f.socketRights = socketRights{Socket: k.hostPath(), Root: k.Root, File: id} // another socket has the path now
	}
	if err := unix.Fstat(fd, st); err != nil { // another process may have changed it before the lock was taken
		return os.NewSyscallError("fstat", err)
	}
	link := hostfs.DescriptorPath(fd)
	byACL := make([]*rightsRequest, 0, len(requests))
	// A file has one owner and one group. If several containers need different ones, only one gets
	// it: granting to each in turn would cause events without end.
	taken := len(requests) > 1 && slices.ContainsFunc(requests, func(r rightsRequest) bool {
		return r.access.Method == ByOwner && r.access.isOwner(st, connectRights) ||
			r.access.Method == ByGroup && st.Gid == r.access.User.GID && uint16(st.Mode>>3)&connectRights == connectRights
	})
	for i := range requests {
		r := &requests[i]
		if !s.hasRecord(r.record) {
			r.err = errdefs.ErrNotFound.WithMessage(fmt.Sprintf("grant user %d access to the socket: the container was removed meanwhile", r.access.User.UID))
			continue
		}
		switch {
		case r.access.isOwner(st, connectRights):
			if f.OwnerChange != nil && f.OwnerChange.After.UID == st.Uid && f.OwnerChange.Before.UID != st.Uid {
				f.addHolder(r, ByOwner) // Jackfield made the user its owner
			}
		case r.access.Method != ByACL && taken:
			if f.OwnerChange != nil {
				f.addHolder(r, r.access.Method)
			}
		case r.access.Method == ByACL:
			byACL = append(byACL, r)
		default:
			r.err = f.grantByOwner(fd, link, st, r, r.access.Method)
		}
	}
	if err := f.writeRecord(); err != nil {
		return err
	}
	if len(byACL) == 0 {
		return nil
	}
	err = f.grantByACL(s, link, byACL)
	for _, r := range byACL {
		switch {
		case errors.Is(err, unix.EOPNOTSUPP):
			r.err = f.grantByOwner(fd, link, st, r, ByGroup)
		case errors.Is(err, unix.EPERM) && uint16(st.Mode)&connectRights == connectRights:
			// This process may not change it, as under rootless Podman, and any user may use it.
		case err != nil:
			r.err = fmt.Errorf("grant user %d access to the socket by its ACL: %w", r.access.User.UID, err)
		}
	}
	return nil
}

// grantByACL adds the users' entries to the socket's ACL in one write.
func (f *rightsFile) grantByACL(s *Store, link string, requests []*rightsRequest) error {
	add := func() error {
		acl, err := readACL(link)
		if err != nil {
			return err
		}
		changed := false
		for _, r := range requests {
			uid := r.access.User.UID
			next, widened := aclWithUser(acl, uid, connectRights)
			recorded := slices.ContainsFunc(f.Entries, func(e aclGrant) bool { return e.UID == uid })
			if widened && !recorded {
				f.Entries = append(f.Entries, aclGrant{UID: uid, Before: userPermissions(acl, uid)})
				f.changed, recorded = true, true
			}
			if recorded {
				f.addHolder(r, ByACL) // otherwise the entry is the administrator's
			}
			acl, changed = next, changed || widened
		}
		if err := f.writeRecord(); err != nil || !changed {
			return err
		}
		return writeACL(link, acl)
	}
	err := add()
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.E2BIG) || errors.Is(err, unix.ERANGE) {
		// Make room: a crash can leave entries of containers that do not exist any more.
		if err := f.revokeACLEntries(s, link); err != nil {
			return err
		}
		if err = add(); err != nil {
			return fmt.Errorf("%w: the ACL has no room for another user; use sockets.access group or owner, or run the containers under fewer users", err)
		}
	}
	return err
}

// grantByOwner makes a user the owner, or a group the group, of the socket.
func (f *rightsFile) grantByOwner(fd int, link string, st *unix.Stat_t, r *rightsRequest, method AccessMethod) error {
	uid, gid, bits := -1, int(r.access.User.GID), uint32(connectRights)<<3
	if method == ByOwner {
		uid, gid, bits = int(r.access.User.UID), -1, uint32(connectRights)<<6
	}
	now := ownershipOf(st)
	after := now
	if uid >= 0 {
		after.UID = uint32(uid)
	}
	if gid >= 0 {
		after.GID = uint32(gid)
	}
	after.Mode |= bits
	if after != now && gid != 0 {
		before := now
		if f.OwnerChange != nil && now.GID == f.OwnerChange.After.GID && now.UID == f.OwnerChange.After.UID {
			before.UID, before.GID = f.OwnerChange.Before.UID, f.OwnerChange.Before.GID // only the mode was changed since
			if now.Mode == f.OwnerChange.After.Mode {
				before.Mode = f.OwnerChange.Before.Mode
			}
		}
		f.OwnerChange = &ownerChange{Before: before, After: after}
		f.changed = true
	}
	if f.OwnerChange != nil {
		f.addHolder(r, method)
	}
	if err := f.writeRecord(); err != nil {
		return err
	}
	if err := changeOwner(fd, link, st, "socket", uid, gid, bits); err != nil {
		return err
	}
	return unix.Fstat(fd, st)
}

// revokeAccess revokes the access to sockets that no other container needs. The container's
// record was removed, or, if record names it, does not have these sockets any more.
func (s *Store) revokeAccess(sockets []Socket, record string) error {
	var errs []error
	for i := range sockets {
		if k := &sockets[i]; k.Access.User != nil && k.Access.User.UID != 0 {
			if err := s.revokeAtSocket(k.hostPath(), record); err != nil {
				errs = append(errs, fmt.Errorf("revoke access to socket %q: %w", k.hostPath(), err))
			}
		}
	}
	return errors.Join(errs...)
}

// sweepRights revokes the access that a crash left, of the containers of all adapters.
func (s *Store) sweepRights() error {
	var files []string
	digits, err := listNames(s.rightsDir())
	errs := []error{err}
	for _, digit := range digits {
		errs = append(errs, removeUnfinished(filepath.Join(s.rightsDir(), digit), func() (func(), error) {
			lock, err := s.lockRights(filepath.Join(s.nodeDir(), "rights", digit))
			return func() { lock.Close() }, err
		}))
		names, err := listNames(filepath.Join(s.rightsDir(), digit))
		errs = append(errs, err)
		for _, name := range names {
			if strings.HasSuffix(name, rightsSuffix) {
				files = append(files, filepath.Join(digit, name))
			}
		}
	}
	for _, file := range files {
		r, err := s.readRights(file)
		if err == nil && r.Socket != "" {
			err = s.revokeAtSocket(r.Socket, "")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("revoke access to socket %q: %w", r.Socket, err))
		}
	}
	return errors.Join(errs...)
}

// revokeAtSocket revokes the access to one socket that no recorded container needs.
func (s *Store) revokeAtSocket(socket, record string) error {
	if _, err := os.Lstat(filepath.Join(s.rightsDir(), rightsName(socket))); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	f, err := s.openRights(socket)
	if err != nil {
		return err
	}
	defer f.lock.Close()
	if f.Socket != socket {
		return f.remove() // the record is damaged
	}
	if record != "" {
		f.Holders = slices.DeleteFunc(f.Holders, func(h rightsHolder) bool { return h.Record == record })
		f.changed = true
	}
	rel, err := filepath.Rel(f.Root, socket)
	if err != nil {
		return err
	}
	fd, err := openBelowRoot(s.host, f.Root, rel, unix.O_PATH|unix.O_NOFOLLOW)
	if errdefs.IsNotFound(err) || errdefs.IsPermissionDenied(err) {
		return f.remove() // the socket was removed, with all access to it
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	id, err := identifyFile(fd)
	if err != nil {
		return err
	}
	if id != f.File {
		return f.remove()
	}
	if err := f.revokeACLEntries(s, hostfs.DescriptorPath(fd)); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil { // the group bits of the mode follow the ACL's mask
		return err
	}
	if err := f.restoreOwner(fd, &st); err != nil {
		return err
	}
	if len(f.Holders) == 0 {
		return f.remove()
	}
	return f.writeRecord()
}

// revokeACLEntries removes holders that are not recorded any more, and the ACL entries of users
// that no other holder has.
func (f *rightsFile) revokeACLEntries(s *Store, link string) error {
	before := len(f.Holders)
	f.Holders = slices.DeleteFunc(f.Holders, func(h rightsHolder) bool { return !s.hasRecord(h.Record) })
	f.changed = f.changed || len(f.Holders) < before
	needed := func(e aclGrant) bool {
		return slices.ContainsFunc(f.Holders, func(h rightsHolder) bool { return h.Method == ByACL && h.User.UID == e.UID })
	}
	if !slices.ContainsFunc(f.Entries, func(e aclGrant) bool { return !needed(e) }) {
		return nil
	}
	acl, err := readACL(link)
	if err != nil {
		return err
	}
	next := acl
	for _, e := range f.Entries {
		if !needed(e) {
			next = aclWithoutGrant(next, e)
		}
	}
	if !slices.Equal(next, acl) {
		if err := writeACL(link, next); err != nil {
			return err
		}
	}
	f.Entries = slices.DeleteFunc(f.Entries, func(e aclGrant) bool { return !needed(e) })
	f.changed = true
	return nil
}

// restoreOwner undoes a change of owner or group that no recorded container needs. If another
// container needs one of its own, that container gets it.
func (f *rightsFile) restoreOwner(fd int, st *unix.Stat_t) error {
	if f.OwnerChange == nil {
		return nil
	}
	now, link := ownershipOf(st), hostfs.DescriptorPath(fd)
	var other *rightsHolder
	for i := range f.Holders {
		h := &f.Holders[i]
		if h.Method == ByGroup && h.User.GID == now.GID || h.Method == ByOwner && h.User.UID == now.UID {
			return nil
		}
		if h.Method != ByACL {
			other = h
		}
	}
	if other != nil {
		return f.grantByOwner(fd, link, st, &rightsRequest{record: other.Record, access: &Access{Method: other.Method, User: &other.User}}, other.Method)
	}
	uid, gid := -1, -1
	if now.UID == f.OwnerChange.After.UID && f.OwnerChange.Before.UID != now.UID {
		uid = int(f.OwnerChange.Before.UID)
	}
	if now.GID == f.OwnerChange.After.GID && f.OwnerChange.Before.GID != now.GID {
		gid = int(f.OwnerChange.Before.GID)
	}
	// Restore the mode first, so that the old group never has the permissions of the container's.
	if now.Mode == f.OwnerChange.After.Mode && now.Mode != f.OwnerChange.Before.Mode {
		if err := unix.Chmod(link, f.OwnerChange.Before.Mode); err != nil {
			return err
		}
	}
	if uid >= 0 || gid >= 0 {
		if err := unix.Fchownat(fd, "", uid, gid, unix.AT_EMPTY_PATH); err != nil {
			return err
		}
	}
	f.OwnerChange, f.changed = nil, true
	return nil
}
