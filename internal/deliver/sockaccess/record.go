// SPDX-License-Identifier: Apache-2.0

package sockaccess

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/host/jsonstore"
)

// state is the state of the rights on one socket, as its record has it.
type state struct {
	Socket      string       `json:"socket"` // canonical host path
	File        fileIdentity `json:"file"`   // the socket that was changed; a socket that replaced it was not
	Entries     []aclGrant   `json:"entries,omitempty"`
	OwnerChange *ownerChange `json:"ownerChange,omitempty"`
	Holders     []holder     `json:"holders"`
}

// aclGrant is a user's ACL entry that was added or widened.
type aclGrant struct {
	UID    uint32  `json:"uid"`
	Before *uint16 `json:"before,omitempty"` // the entry's old permissions, nil for no entry
}

// ownerChange is a change of owner, group and mode.
type ownerChange struct {
	Before ownership `json:"before"`
	After  ownership `json:"after"`
}

// holder is a container that needs a grant.
type holder struct {
	Container string            `json:"container"` // as in Request
	Method    edit.AccessMethod `json:"method"`    // the method that worked
	User      edit.User         `json:"user"`
}

// records returns the records in a directory.
func records(dir string) jsonstore.Store[state] {
	// The limit is for a socket that all pods of a node share: it has a holder for each container.
	return jsonstore.Store[state]{Dir: dir, MaxSize: 4 << 20, Check: func(_ string, s *state) error {
		if filepath.Clean(s.Socket) != s.Socket {
			return fmt.Errorf("socket: invalid value %q: must be a clean path", s.Socket)
		}
		return hostfs.CheckPath(s.Socket)
	}}
}

// readState reads a record. A missing or damaged record is empty.
func readState(records jsonstore.Store[state], file string) (state, error) {
	s, err := records.Read(file)
	if errors.Is(err, jsonstore.ErrDamaged) || s == nil && err == nil {
		return state{}, nil
	}
	if err != nil {
		return state{}, fmt.Errorf("read the record of a socket's rights %q: %w", file, err)
	}
	return *s, nil
}

// record is the record of a socket, open and locked.
type record struct {
	state
	records    jsonstore.Store[state]
	file       string // its name
	lock       *os.File
	before     []byte // the state in the file
	isRecorded func(container string) bool
}

// write writes the record atomically if it has changed. A socket that was not changed has no record.
func (r *record) write() error {
	now, err := json.Marshal(&r.state)
	if err != nil || bytes.Equal(now, r.before) || r.before == nil && len(r.Holders) == 0 {
		return err
	}
	if err := r.records.Write(r.file, &r.state); err != nil {
		return fmt.Errorf("record the socket's rights: %w", err)
	}
	r.before = now
	return nil
}

func (r *record) remove() error { return r.records.Remove(r.file) }

func (r *record) addHolder(q Request, method edit.AccessMethod) {
	if h := (holder{q.Container, method, *q.Access.User}); !slices.Contains(r.Holders, h) {
		r.Holders = append(r.Holders, h)
	}
}

// grant grants the users of several containers access to the socket of a descriptor.
func (r *record) grant(fd int, now ownership, requests []Request) error {
	taken := isTaken(now, requests)
	var byACL []Request
	var errs []error
	for _, q := range requests {
		// The record must exist before access is granted: the removal of a container revokes only recorded access.
		// So a container without a record gets nothing, and the ACL entries wait until the record is written.
		switch {
		case !r.isRecorded(q.Container):
			err := errdefs.ErrNotFound.WithMessage(fmt.Sprintf(
				"grant user %d access to the socket: the container was removed meanwhile", q.Access.User.UID))
			errs = append(errs, edit.WithOrigin(q.From, err))
		case q.isOwner(now):
			if c := r.OwnerChange; c != nil && c.After.UID == now.UID && c.Before.UID != now.UID {
				r.addHolder(q, edit.ByOwner) // Jackfield made the user its owner
			}
		case q.Access.Method == edit.ByACL:
			byACL = append(byACL, q)
		case taken:
			if r.OwnerChange != nil {
				r.addHolder(q, q.Access.Method)
			}
		default:
			errs = append(errs, edit.WithOrigin(q.From, r.grantByOwner(fd, &now, q, q.Access.Method)))
		}
	}
	if err := r.write(); err != nil {
		return err
	}
	return errors.Join(append(errs, r.grantByACL(fd, now, byACL)...)...)
}

// isTaken reports whether one of several requests has the socket's owner or group already. A file has one owner and
// one group. If several containers need different ones, only one gets it: granting to each in turn would cause events
// without end.
func isTaken(now ownership, requests []Request) bool {
	return len(requests) > 1 && slices.ContainsFunc(requests, func(q Request) bool {
		return q.Access.Method == edit.ByOwner && q.isOwner(now) ||
			q.Access.Method == edit.ByGroup && now.GID == q.Access.User.GID && now.Mode>>3&connectRights == connectRights
	})
}

// grantByACL grants the users access by the socket's ACL, or, on a file system without ACLs, by the socket's group.
func (r *record) grantByACL(fd int, now ownership, requests []Request) (errs []error) {
	if len(requests) == 0 {
		return nil
	}
	err := r.addACLEntries(hostfs.DescriptorPath(fd), requests)
	for _, q := range requests {
		if errors.Is(err, unix.EOPNOTSUPP) {
			errs = append(errs, edit.WithOrigin(q.From, r.grantByOwner(fd, &now, q, edit.ByGroup)))
		} else if err != nil && !now.isUsable(connectRights, err) {
			errs = append(errs, edit.WithOrigin(q.From,
				fmt.Errorf("grant user %d access to the socket by its ACL: %w", q.Access.User.UID, err)))
		}
	}
	return errs
}

// addACLEntries adds the users' entries to the socket's ACL. If the ACL is full, it removes the entries of containers
// that do not exist any more, which a crash can leave.
func (r *record) addACLEntries(link string, requests []Request) error {
	err := r.extendACL(link, requests)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.E2BIG) || errors.Is(err, unix.ERANGE) {
		if err := r.revokeACLEntries(link); err != nil {
			return err
		}
		if err = r.extendACL(link, requests); err != nil {
			return fmt.Errorf("%w: the ACL has no room for another user; "+
				"use sockets.access group or owner, or run the containers under fewer users", err)
		}
	}
	return err
}

// extendACL records the users' entries and adds them to the socket's ACL in one write.
func (r *record) extendACL(link string, requests []Request) error {
	acl, err := readACL(link)
	if err != nil {
		return err
	}
	changed := false
	for _, q := range requests {
		uid := q.Access.User.UID
		next, widened := aclWithUser(acl, uid, connectRights)
		recorded := slices.ContainsFunc(r.Entries, func(e aclGrant) bool { return e.UID == uid })
		if widened && !recorded {
			r.Entries = append(r.Entries, aclGrant{UID: uid, Before: userPermissions(acl, uid)})
			recorded = true
		}
		if recorded {
			r.addHolder(q, edit.ByACL) // otherwise the entry is the administrator's
		}
		acl, changed = next, changed || widened
	}
	if err := r.write(); err != nil || !changed {
		return err
	}
	return writeACL(link, acl)
}

// grantByOwner makes a user the owner, or a group the group, of the socket, and updates now.
func (r *record) grantByOwner(fd int, now *ownership, q Request, method edit.AccessMethod) error {
	after, err := now.withAccess(q.Access.User, method, "socket", connectRights)
	if err != nil {
		return err
	}
	if after != *now {
		before := *now
		if last := r.OwnerChange; last != nil && now.GID == last.After.GID && now.UID == last.After.UID {
			before.UID, before.GID = last.Before.UID, last.Before.GID // only the mode was changed since
			if now.Mode == last.After.Mode {
				before.Mode = last.Before.Mode
			}
		}
		r.OwnerChange = &ownerChange{Before: before, After: after}
	}
	if r.OwnerChange != nil {
		r.addHolder(q, method)
	}
	if err := r.write(); err != nil {
		return err
	}
	if err := setOwnership(fd, "socket", *now, after); err != nil {
		return err
	}
	_, *now, err = inspectFile(fd)
	return err
}

// revoke revokes the access to the socket of a descriptor that no holder needs.
func (r *record) revoke(fd int) error {
	id, _, err := inspectFile(fd)
	if err != nil {
		return err
	}
	if id != r.File {
		return r.remove()
	}
	if err := r.revokeACLEntries(hostfs.DescriptorPath(fd)); err != nil {
		return err
	}
	_, now, err := inspectFile(fd) // the group bits of the mode follow the ACL's mask
	if err != nil {
		return err
	}
	if err := r.restoreOwner(fd, now); err != nil {
		return err
	}
	if len(r.Holders) == 0 {
		return r.remove()
	}
	return r.write()
}

// revokeACLEntries removes holders that are not recorded any more, and the ACL entries of users that no other holder
// has.
func (r *record) revokeACLEntries(link string) error {
	r.Holders = slices.DeleteFunc(r.Holders, func(h holder) bool { return !r.isRecorded(h.Container) })
	needed := func(e aclGrant) bool {
		return slices.ContainsFunc(r.Holders, func(h holder) bool { return h.Method == edit.ByACL && h.User.UID == e.UID })
	}
	if !slices.ContainsFunc(r.Entries, func(e aclGrant) bool { return !needed(e) }) {
		return nil
	}
	acl, err := readACL(link)
	if err != nil {
		return err
	}
	next := acl
	for _, e := range r.Entries {
		if !needed(e) {
			next = aclWithoutGrant(next, e)
		}
	}
	if !slices.Equal(next, acl) {
		if err := writeACL(link, next); err != nil {
			return err
		}
	}
	r.Entries = slices.DeleteFunc(r.Entries, func(e aclGrant) bool { return !needed(e) })
	return nil
}

// restoreOwner undoes a change of owner or group that no holder needs. If another holder needs one of its own, that
// holder gets it.
func (r *record) restoreOwner(fd int, now ownership) error {
	if r.OwnerChange == nil {
		return nil
	}
	var other *holder
	for i := range r.Holders {
		h := &r.Holders[i]
		if h.Method == edit.ByGroup && h.User.GID == now.GID || h.Method == edit.ByOwner && h.User.UID == now.UID {
			return nil
		}
		if h.Method != edit.ByACL {
			other = h
		}
	}
	if other != nil {
		q := Request{Container: other.Container, Access: &edit.Access{User: &other.User}}
		return r.grantByOwner(fd, &now, q, other.Method)
	}
	// A value that was changed since then stays.
	before, after, restored := r.OwnerChange.Before, r.OwnerChange.After, now
	if now.UID == after.UID {
		restored.UID = before.UID
	}
	if now.GID == after.GID {
		restored.GID = before.GID
	}
	if now.Mode == after.Mode {
		restored.Mode = before.Mode
	}
	if err := setOwnership(fd, "socket", now, restored); err != nil {
		return err
	}
	r.OwnerChange = nil
	return nil
}
