// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// rightsRequest is one container's request for access.
type rightsRequest struct {
	record string // as rightsHolder has it
	access *edit.Access
	from   string // file and field of the request, for messages
}

// grantAccess grants a container's user access to the socket of a descriptor.
func (s *Store) grantAccess(sandboxID, containerID string, k *edit.Socket, fd int) error {
	if err := setSocketLabel(&k.Access, fd); err != nil || !needsGrant(&k.Access) {
		return err
	}
	return s.grantToAll(k, fd, []rightsRequest{{record: s.recordName(sandboxID, containerID), access: &k.Access}})
}

// grantToAll grants the users of several containers access to one socket. It does not change what
// is already as requested, so that it causes no event for the watchers of the socket.
func (s *Store) grantToAll(k *edit.Socket, fd int, requests []rightsRequest) error {
	f, err := s.openRights(k.HostPath())
	if err != nil {
		return err
	}
	defer f.lock.Close()
	id, now, err := inspectFile(fd) // under the lock: another process may just have changed it
	if err != nil {
		return err
	}
	if f.File != id {
		f.socketRights = socketRights{Socket: k.HostPath(), Root: k.Root, File: id} // another socket has the path now
	}
	taken := isTaken(now, requests)
	var byACL []rightsRequest
	var errs []error
	for _, r := range requests {
		switch {
		case !s.hasRecord(r.record):
			errs = append(errs, withOrigin(r.from, errdefs.ErrNotFound.WithMessage(fmt.Sprintf("grant user %d access to the socket: the container was removed meanwhile", r.access.User.UID))))
		case isOwner(r.access, now, connectRights):
			if f.OwnerChange != nil && f.OwnerChange.After.UID == now.UID && f.OwnerChange.Before.UID != now.UID {
				f.addHolder(r, edit.ByOwner) // Jackfield made the user its owner
			}
		case r.access.Method == edit.ByACL:
			byACL = append(byACL, r)
		case taken:
			if f.OwnerChange != nil {
				f.addHolder(r, r.access.Method)
			}
		default:
			errs = append(errs, withOrigin(r.from, f.grantByOwner(fd, &now, r, r.access.Method)))
		}
	}
	if err := f.writeRecord(); err != nil {
		return err
	}
	return errors.Join(append(errs, f.grantByACL(s, fd, now, byACL)...)...)
}

// isTaken reports whether one of several requests has the file's owner or group already. A file has one
// owner and one group. If several containers need different ones, only one gets it: granting to each in
// turn would cause events without end.
func isTaken(now ownership, requests []rightsRequest) bool {
	return len(requests) > 1 && slices.ContainsFunc(requests, func(r rightsRequest) bool {
		return r.access.Method == edit.ByOwner && isOwner(r.access, now, connectRights) ||
			r.access.Method == edit.ByGroup && now.GID == r.access.User.GID && now.Mode>>3&connectRights == connectRights
	})
}

// grantByACL grants the users access by the socket's ACL, or, on a file system without ACLs, by the
// socket's group.
func (f *rightsFile) grantByACL(s *Store, fd int, now ownership, requests []rightsRequest) (errs []error) {
	if len(requests) == 0 {
		return nil
	}
	err := f.addACLEntries(s, hostfs.DescriptorPath(fd), requests)
	for _, r := range requests {
		if errors.Is(err, unix.EOPNOTSUPP) {
			errs = append(errs, withOrigin(r.from, f.grantByOwner(fd, &now, r, edit.ByGroup)))
		} else if err != nil && !mayUse(now, connectRights, err) {
			errs = append(errs, withOrigin(r.from, fmt.Errorf("grant user %d access to the socket by its ACL: %w", r.access.User.UID, err)))
		}
	}
	return errs
}

// addACLEntries adds the users' entries to the socket's ACL. If the ACL is full, it makes room: a crash
// can leave entries of containers that do not exist any more.
func (f *rightsFile) addACLEntries(s *Store, link string, requests []rightsRequest) error {
	err := f.extendACL(link, requests)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.E2BIG) || errors.Is(err, unix.ERANGE) {
		if err := f.revokeACLEntries(s, link); err != nil {
			return err
		}
		if err = f.extendACL(link, requests); err != nil {
			return fmt.Errorf("%w: the ACL has no room for another user; use sockets.access group or owner, or run the containers under fewer users", err)
		}
	}
	return err
}

// extendACL records the users' entries and adds them to the socket's ACL in one write.
func (f *rightsFile) extendACL(link string, requests []rightsRequest) error {
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
			recorded = true
		}
		if recorded {
			f.addHolder(r, edit.ByACL) // otherwise the entry is the administrator's
		}
		acl, changed = next, changed || widened
	}
	if err := f.writeRecord(); err != nil || !changed {
		return err
	}
	return writeACL(link, acl)
}

// grantByOwner makes a user the owner, or a group the group, of the socket, and updates now.
func (f *rightsFile) grantByOwner(fd int, now *ownership, r rightsRequest, method edit.AccessMethod) error {
	after, err := grantIn(r.access, *now, method, "socket", connectRights)
	if err != nil {
		return err
	}
	if after != *now {
		before := *now
		if last := f.OwnerChange; last != nil && now.GID == last.After.GID && now.UID == last.After.UID {
			before.UID, before.GID = last.Before.UID, last.Before.GID // only the mode was changed since
			if now.Mode == last.After.Mode {
				before.Mode = last.Before.Mode
			}
		}
		f.OwnerChange = &ownerChange{Before: before, After: after}
	}
	if f.OwnerChange != nil {
		f.addHolder(r, method)
	}
	if err := f.writeRecord(); err != nil {
		return err
	}
	if err := setOwnership(fd, "socket", *now, after); err != nil {
		return err
	}
	_, *now, err = inspectFile(fd)
	return err
}

// revokeAccess revokes the access to sockets that no other container needs. The container's
// record was removed, or, if record names it, does not have these sockets any more.
func (s *Store) revokeAccess(sockets []edit.Socket, record string) error {
	var errs []error
	for i := range sockets {
		if k := &sockets[i]; k.Access.User != nil && k.Access.User.UID != 0 {
			if err := s.revokeAtSocket(k.HostPath(), record); err != nil {
				errs = append(errs, fmt.Errorf("revoke access to socket %q: %w", k.HostPath(), err))
			}
		}
	}
	return errors.Join(errs...)
}

// sweepRights revokes the access that a crash left, of the containers of all adapters.
func (s *Store) sweepRights() error {
	digits, err := listNames(s.rightsDir())
	errs := []error{err}
	for _, digit := range digits {
		errs = append(errs, removeUnfinished(filepath.Join(s.rightsDir(), digit), func(f func() error) error {
			lock, err := s.lockRights(filepath.Join(s.nodeDir(), "rights", digit))
			if err != nil {
				return err
			}
			defer lock.Close()
			return f()
		}))
	}
	files, err := fs.Glob(os.DirFS(s.rightsDir()), "*/*"+rightsSuffix)
	errs = append(errs, err)
	for _, file := range files {
		r, _, err := s.readRights(file)
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
	// An unresponsive root blocks here, where the lock is not held that other sockets' records have, too.
	if r, _, err := s.readRights(rightsName(socket)); err == nil && r.Socket == socket {
		if fd, err := openBelowRoot(s.host, r.Root, strings.TrimPrefix(socket, r.Root+"/"), unix.O_PATH|unix.O_NOFOLLOW); err == nil {
			unix.Close(fd)
		}
	}
	f, err := s.openRights(socket)
	if err != nil {
		return err
	}
	defer f.lock.Close()
	if f.Socket != socket {
		return f.remove() // the record is damaged
	}
	f.Holders = slices.DeleteFunc(f.Holders, func(h rightsHolder) bool { return h.Record == record })
	fd, err := openBelowRoot(s.host, f.Root, strings.TrimPrefix(socket, f.Root+"/"), unix.O_PATH|unix.O_NOFOLLOW)
	if isAbsent(err) {
		return f.remove() // the socket was removed, with all access to it
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	id, _, err := inspectFile(fd)
	if err != nil {
		return err
	}
	if id != f.File {
		return f.remove()
	}
	if err := f.revokeACLEntries(s, hostfs.DescriptorPath(fd)); err != nil {
		return err
	}
	_, now, err := inspectFile(fd) // the group bits of the mode follow the ACL's mask
	if err != nil {
		return err
	}
	if err := f.restoreOwner(fd, now); err != nil {
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
	f.Holders = slices.DeleteFunc(f.Holders, func(h rightsHolder) bool { return !s.hasRecord(h.Record) })
	needed := func(e aclGrant) bool {
		return slices.ContainsFunc(f.Holders, func(h rightsHolder) bool { return h.Method == edit.ByACL && h.User.UID == e.UID })
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
	return nil
}

// restoreOwner undoes a change of owner or group that no recorded container needs. If another
// container needs one of its own, that container gets it.
func (f *rightsFile) restoreOwner(fd int, now ownership) error {
	if f.OwnerChange == nil {
		return nil
	}
	var other *rightsHolder
	for i := range f.Holders {
		h := &f.Holders[i]
		if h.Method == edit.ByGroup && h.User.GID == now.GID || h.Method == edit.ByOwner && h.User.UID == now.UID {
			return nil
		}
		if h.Method != edit.ByACL {
			other = h
		}
	}
	if other != nil {
		return f.grantByOwner(fd, &now, rightsRequest{record: other.Record, access: &edit.Access{User: &other.User}}, other.Method)
	}
	// What was changed since then stays.
	want := now
	if now.UID == f.OwnerChange.After.UID {
		want.UID = f.OwnerChange.Before.UID
	}
	if now.GID == f.OwnerChange.After.GID {
		want.GID = f.OwnerChange.Before.GID
	}
	if now.Mode == f.OwnerChange.After.Mode {
		want.Mode = f.OwnerChange.Before.Mode
	}
	if err := setOwnership(fd, "socket", now, want); err != nil {
		return err
	}
	f.OwnerChange = nil
	return nil
}
