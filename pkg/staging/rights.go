// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
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

// The rights that containers' users have at a socket of the host are recorded before they are granted, in the state directory of the node:
//
//	<state>/rights/<digit>/<name>.json   what was changed at one socket, and for which containers
//	<state>/rights/<digit>/              locked (flock) while the rights of one of its sockets change
//
// The stores of all adapters share them. A right ends with the last container that needs it, which is the last one whose record exists. Nothing is taken
// back that was not recorded: an administrator's own ACL entries stay.

// socketRights is the record of one socket.
type socketRights struct {
	Socket  string         `json:"socket"` // host path
	Root    string         `json:"root"`   // of its socket root
	File    fileIdentity   `json:"file"`   // the socket that was changed; one that took its place was not
	Entries []aclRight     `json:"entries,omitempty"`
	Given   *ownerChange   `json:"given,omitempty"`
	Holders []rightsHolder `json:"holders"`
}

// fileIdentity tells a file from every other, also from one that later has its inode's number.
type fileIdentity struct {
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
	Born   int64  `json:"born,omitempty"` // nanoseconds since 1970, 0 where the file system does not say
}

// aclRight is an ACL entry of a user that was added or widened.
type aclRight struct {
	UID    uint32  `json:"uid"`
	Before *uint16 `json:"before,omitempty"` // the entry's permissions, nil where there was none
}

// ownerChange is a change of owner, group and mode.
type ownerChange struct {
	Before ownership `json:"before"`
	After  ownership `json:"after"`
}

type ownership struct {
	UID  uint32 `json:"uid"`
	GID  uint32 `json:"gid"`
	Mode uint32 `json:"mode"` // permissions only
}

func ownershipOf(st *unix.Stat_t) ownership { return ownership{st.Uid, st.Gid, st.Mode & 0o7777} }

// rightsHolder is a container that needs a right.
type rightsHolder struct {
	Record string `json:"record"` // the container's record, below the node's state directory
	Way    Way    `json:"way"`    // the one that worked
	User   User   `json:"user"`
}

// rightsRequest is one container's wish for access.
type rightsRequest struct {
	record string
	access *Access
	from   string // what asks for it, for messages
	err    error  // what became of it
}

// nodeDir is the host path of the node's state directory, in which the store of another owner than the NRI plugin lies.
func (s *Store) nodeDir() string {
	if s.opts.Owner != "" {
		return filepath.Dir(s.hostDir)
	}
	return s.hostDir
}

func (s *Store) rightsDir() string { return s.host.Path(filepath.Join(s.nodeDir(), "rights")) }

// recordName is a container's record as its rights are held by it.
func (s *Store) recordName(sandboxID, containerID string) string {
	rel, err := filepath.Rel(s.host.Path(s.nodeDir()), s.recordFile(sandboxID, containerID))
	if err != nil {
		return s.recordFile(sandboxID, containerID)
	}
	return rel
}

// hasRecord reports whether a holder's container is on record. Where the store that keeps it cannot be seen it counts as recorded: nothing is taken from a
// running container because a check failed.
func (s *Store) hasRecord(name string) bool {
	if !local(name) {
		return false
	}
	node := s.host.Path(s.nodeDir())
	if _, err := os.Lstat(filepath.Join(node, name)); !errors.Is(err, os.ErrNotExist) {
		return true
	}
	store, _, _ := strings.Cut(name, "sandboxes/")
	_, err := os.Lstat(filepath.Join(node, store, "sandboxes"))
	return err != nil
}

// grantAccess gives a container's user access to the socket of a descriptor.
func (s *Store) grantAccess(sandboxID, containerID string, k *Socket, fd int, st *unix.Stat_t) error {
	if err := k.Access.setLabel(fd, "socket"); err != nil || !k.Access.isGranted() {
		return err
	}
	request := []rightsRequest{{record: s.recordName(sandboxID, containerID), access: &k.Access}}
	if err := s.grantAll(k, fd, st, request); err != nil {
		return err
	}
	return request[0].err
}

// grantAll gives the users of several containers access to one socket. What is so already is not touched, so that nobody who watches the socket is woken.
func (s *Store) grantAll(k *Socket, fd int, st *unix.Stat_t, requests []rightsRequest) error {
	f, err := s.openRights(k.path())
	if err != nil {
		return err
	}
	defer f.close()
	id, err := identify(fd)
	if err != nil {
		return err
	}
	if f.File != id {
		f.socketRights = socketRights{Socket: k.path(), Root: k.Root, File: id} // another socket is there now
	}
	if err := unix.Fstat(fd, st); err != nil { // another process may have changed it until the lock was had
		return os.NewSyscallError("fstat", err)
	}
	link := linkOf(fd)
	byACL := make([]*rightsRequest, 0, len(requests))
	// A file has one owner and one group. Of several containers that need another one, one has it: each in turn would wake the watcher for ever.
	taken := len(requests) > 1 && slices.ContainsFunc(requests, func(r rightsRequest) bool {
		return r.access.Way == ByOwner && r.access.isOwner(st, toConnect) ||
			r.access.Way == ByGroup && st.Gid == r.access.User.GID && uint16(st.Mode>>3)&toConnect == toConnect
	})
	for i := range requests {
		r := &requests[i]
		if !s.hasRecord(r.record) {
			r.err = fmt.Errorf("let user %d at the socket: the container was removed meanwhile: %w", r.access.User.UID, errdefs.ErrNotFound)
			continue
		}
		switch {
		case r.access.isOwner(st, toConnect):
			if f.Given != nil && f.Given.After.UID == st.Uid && f.Given.Before.UID != st.Uid {
				f.addHolder(r, ByOwner) // by our doing
			}
		case r.access.Way != ByACL && taken:
			if f.Given != nil {
				f.addHolder(r, r.access.Way)
			}
		case r.access.Way == ByACL:
			byACL = append(byACL, r)
		default:
			r.err = f.grantByOwner(fd, link, st, r, r.access.Way)
		}
	}
	if err := f.write(); err != nil {
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
		case errors.Is(err, unix.EPERM) && uint16(st.Mode)&toConnect == toConnect:
			// Not this user's to change, as under rootless Podman, and anyone's to use.
		case err != nil:
			r.err = fmt.Errorf("let user %d at the socket by its ACL: %w", r.access.User.UID, err)
		}
	}
	return nil
}

// grantByACL adds the users' entries to the socket's ACL, all at once.
func (f *rightsFile) grantByACL(s *Store, link string, requests []*rightsRequest) error {
	add := func() error {
		acl, err := readACL(link)
		if err != nil {
			return err
		}
		changed := false
		for _, r := range requests {
			uid := r.access.User.UID
			next, widened := allowed(acl, uid, toConnect)
			recorded := slices.ContainsFunc(f.Entries, func(e aclRight) bool { return e.UID == uid })
			if widened && !recorded {
				f.Entries = append(f.Entries, aclRight{UID: uid, Before: permissionsOf(acl, uid)})
				f.changed, recorded = true, true
			}
			if recorded {
				f.addHolder(r, ByACL) // else the right is the administrator's
			}
			acl, changed = next, changed || widened
		}
		if err := f.write(); err != nil || !changed {
			return err
		}
		return writeACL(link, acl)
	}
	err := add()
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.E2BIG) || errors.Is(err, unix.ERANGE) {
		// Entries of users whose containers are gone, which a crash can leave, make room.
		if err := f.withdraw(s, link); err != nil {
			return err
		}
		if err = add(); err != nil {
			return fmt.Errorf("%w: it has no room for another user; use sockets.access group or owner, or run the containers under fewer users", err)
		}
	}
	return err
}

// grantByOwner gives the socket to a user or group.
func (f *rightsFile) grantByOwner(fd int, link string, st *unix.Stat_t, r *rightsRequest, way Way) error {
	uid, gid, bits := -1, int(r.access.User.GID), uint32(toConnect)<<3
	if way == ByOwner {
		uid, gid, bits = int(r.access.User.UID), -1, uint32(toConnect)<<6
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
		if f.Given != nil && now.GID == f.Given.After.GID && now.UID == f.Given.After.UID {
			before.UID, before.GID = f.Given.Before.UID, f.Given.Before.GID // the mode alone was changed by somebody
			if now.Mode == f.Given.After.Mode {
				before.Mode = f.Given.Before.Mode
			}
		}
		f.Given = &ownerChange{Before: before, After: after}
		f.changed = true
	}
	if f.Given != nil {
		f.addHolder(r, way)
	}
	if err := f.write(); err != nil {
		return err
	}
	if err := give(fd, link, st, "socket", uid, gid, bits); err != nil {
		return err
	}
	return unix.Fstat(fd, st)
}

func (f *rightsFile) addHolder(r *rightsRequest, way Way) {
	h := rightsHolder{r.record, way, *r.access.User}
	if !slices.Contains(f.Holders, h) {
		f.Holders = append(f.Holders, h)
		f.changed = true
	}
}

// revokeAccess takes back what a container's users alone had at the sockets of its record, which was removed, or, with record, which names these no more.
func (s *Store) revokeAccess(sockets []Socket, record string) error {
	var errs []error
	for i := range sockets {
		if k := &sockets[i]; k.Access.User != nil && k.Access.User.UID != 0 {
			if err := s.revokeAt(k.path(), record); err != nil {
				errs = append(errs, fmt.Errorf("take back rights at socket %q: %w", k.path(), err))
			}
		}
	}
	return errors.Join(errs...)
}

// sweepRights takes back what a crash left, of all adapters' containers.
func (s *Store) sweepRights() error {
	var files []string
	digits, err := readNames(s.rightsDir())
	errs := []error{err}
	for _, digit := range digits {
		names, err := readNames(filepath.Join(s.rightsDir(), digit))
		errs = append(errs, err)
		for _, name := range names {
			if strings.HasSuffix(name, rightsSuffix) && name[0] != '.' {
				files = append(files, filepath.Join(digit, name))
			}
		}
	}
	for _, file := range files {
		r, err := readRights(filepath.Join(s.rightsDir(), file))
		if err == nil && r.Socket != "" {
			err = s.revokeAt(r.Socket, "")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("take back rights at socket %q: %w", r.Socket, err))
		}
	}
	return errors.Join(errs...)
}

func (s *Store) revokeAt(socket, record string) error {
	if _, err := os.Lstat(filepath.Join(s.rightsDir(), rightsName(socket))); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	f, err := s.openRights(socket)
	if err != nil {
		return err
	}
	defer f.close()
	if f.Socket != socket {
		return f.remove() // a disk lost it
	}
	if record != "" {
		f.Holders = slices.DeleteFunc(f.Holders, func(h rightsHolder) bool { return h.Record == record })
		f.changed = true
	}
	rel, err := filepath.Rel(f.Root, socket)
	if err != nil {
		return err
	}
	fd, err := s.openIn(f.Root, rel, unix.O_PATH|unix.O_NOFOLLOW)
	if errdefs.IsNotFound(err) || errdefs.IsPermissionDenied(err) {
		return f.remove() // the socket is gone, and with it what was granted
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	id, err := identify(fd)
	if err != nil {
		return err
	}
	if id != f.File {
		return f.remove()
	}
	if err := f.withdraw(s, linkOf(fd)); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil { // the mode follows the ACL's mask
		return err
	}
	if err := f.giveBack(fd, &st); err != nil {
		return err
	}
	if len(f.Holders) == 0 {
		return f.remove()
	}
	return f.write()
}

// withdraw removes the ACL entries of users that no recorded container has, and forgets such containers.
func (f *rightsFile) withdraw(s *Store, link string) error {
	before := len(f.Holders)
	f.Holders = slices.DeleteFunc(f.Holders, func(h rightsHolder) bool { return !s.hasRecord(h.Record) })
	f.changed = f.changed || len(f.Holders) < before
	needed := func(e aclRight) bool {
		return slices.ContainsFunc(f.Holders, func(h rightsHolder) bool { return h.Way == ByACL && h.User.UID == e.UID })
	}
	if !slices.ContainsFunc(f.Entries, func(e aclRight) bool { return !needed(e) }) {
		return nil
	}
	acl, err := readACL(link)
	if err != nil {
		return err
	}
	next := acl
	for _, e := range f.Entries {
		if !needed(e) {
			next = withdrawn(next, e)
		}
	}
	if !slices.Equal(next, acl) {
		if err := writeACL(link, next); err != nil {
			return err
		}
	}
	f.Entries = slices.DeleteFunc(f.Entries, func(e aclRight) bool { return !needed(e) })
	f.changed = true
	return nil
}

// giveBack undoes a change of owner or group that no recorded container needs, or gives the socket to one that does.
func (f *rightsFile) giveBack(fd int, st *unix.Stat_t) error {
	if f.Given == nil {
		return nil
	}
	now, link := ownershipOf(st), linkOf(fd)
	var other *rightsHolder
	for i := range f.Holders {
		h := &f.Holders[i]
		if h.Way == ByGroup && h.User.GID == now.GID || h.Way == ByOwner && h.User.UID == now.UID {
			return nil
		}
		if h.Way != ByACL {
			other = h
		}
	}
	if other != nil {
		return f.grantByOwner(fd, link, st, &rightsRequest{record: other.Record, access: &Access{Way: other.Way, User: &other.User}}, other.Way)
	}
	uid, gid := -1, -1
	if now.UID == f.Given.After.UID && f.Given.Before.UID != now.UID {
		uid = int(f.Given.Before.UID)
	}
	if now.GID == f.Given.After.GID && f.Given.Before.GID != now.GID {
		gid = int(f.Given.Before.GID)
	}
	// The mode first: a former group never has what the container's group had.
	if now.Mode == f.Given.After.Mode && now.Mode != f.Given.Before.Mode {
		if err := unix.Chmod(link, f.Given.Before.Mode); err != nil {
			return err
		}
	}
	if uid >= 0 || gid >= 0 {
		if err := unix.Fchownat(fd, "", uid, gid, unix.AT_EMPTY_PATH); err != nil {
			return err
		}
	}
	f.Given, f.changed = nil, true
	return nil
}

// rightsFile is a socket's record, locked.
type rightsFile struct {
	socketRights
	dir, name string
	lock      int
	changed   bool // since it was read or written
}

const rightsSuffix = ".json"

// rightsName is the path of a socket's record below rights/. The directory is one of sixteen, so
// that a socket on a file system that hangs does not hold up all others.
func rightsName(socket string) string {
	sum := sha256.Sum256([]byte(socket))
	name := hex.EncodeToString(sum[:16])
	return filepath.Join(name[:1], name+rightsSuffix)
}

// openRights locks and reads a socket's record. One that is missing, or that a disk lost, is empty.
func (s *Store) openRights(socket string) (*rightsFile, error) {
	rel := rightsName(socket)
	file := filepath.Join(s.rightsDir(), rel)
	dir, name := filepath.Split(file)
	fd, err := s.lockRights(filepath.Join(s.nodeDir(), "rights", filepath.Dir(rel)))
	if err != nil {
		return nil, err
	}
	r, err := readRights(file)
	if err != nil {
		unix.Close(fd)
		return nil, &os.PathError{Op: "read", Path: file, Err: err}
	}
	return &rightsFile{socketRights: r, dir: dir, name: name, lock: fd}, nil
}

// maxLockAttempts bounds how often a directory that another process removes is created again.
const maxLockAttempts = 1000

// lockRights opens and locks a directory of records, a host path, and creates it where it is
// missing.
func (s *Store) lockRights(hostDir string) (fd int, err error) {
	dir := s.host.Path(hostDir)
	for range maxLockAttempts {
		for _, d := range []string{filepath.Dir(hostDir), hostDir} {
			var f *os.File
			if f, err = s.host.MakeDir(d, privateDir); err != nil {
				break
			}
			f.Close()
		}
		if errors.Is(err, unix.ENOENT) {
			continue // another process removed the parent, see close
		}
		if err != nil {
			return -1, err
		}
		fd, err = unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return -1, &os.PathError{Op: "open", Path: dir, Err: err}
		}
		for {
			if err = unix.Flock(fd, unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
				break
			}
		}
		var st unix.Stat_t
		if err == nil {
			err = unix.Fstat(fd, &st)
		}
		if err == nil && st.Nlink > 0 {
			return fd, nil
		}
		unix.Close(fd)
		if err != nil {
			return -1, &os.PathError{Op: "lock", Path: dir, Err: err}
		}
		// It was removed while this process waited for it.
	}
	return -1, fmt.Errorf("lock %q: it disappears again and again: %w", dir, errdefs.ErrUnavailable)
}

// maxRights bounds a record: a socket that all pods of a node share has as many holders.
const maxRights = 4 << 20

func readRights(file string) (r socketRights, err error) {
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return r, nil
	}
	if err != nil {
		return r, &os.PathError{Op: "open", Path: file, Err: err}
	}
	f := os.NewFile(uintptr(fd), file)
	defer f.Close()
	data, err := hostfs.ReadRegular(f, maxRights)
	if err != nil {
		return r, err
	}
	return decodeRights(data), nil
}

// decodeRights reads a record. What is none is empty.
func decodeRights(data []byte) socketRights {
	var r socketRights
	if json.Unmarshal(data, &r) != nil || hostfs.CheckPath(r.Socket) != nil || hostfs.CheckPath(r.Root) != nil || !strings.HasPrefix(r.Socket, r.Root+"/") {
		return socketRights{}
	}
	return r
}

// write replaces the record where it has changed.
func (f *rightsFile) write() error {
	if !f.changed {
		return nil
	}
	data, err := json.Marshal(&f.socketRights)
	if err != nil {
		return err
	}
	tmp := filepath.Join(f.dir, "."+f.name+".new")
	if err = create(tmp, data, 0o600); err == nil {
		err = os.Rename(tmp, filepath.Join(f.dir, f.name))
	}
	if err != nil {
		return fmt.Errorf("record the socket's rights: %w", err)
	}
	f.changed = false
	return nil
}

func (f *rightsFile) remove() error {
	if err := os.Remove(filepath.Join(f.dir, f.name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// close unlocks the record. Its directory goes with the last record in it.
func (f *rightsFile) close() {
	dir := filepath.Clean(f.dir)
	if unix.Rmdir(dir) == nil {
		_ = unix.Rmdir(filepath.Dir(dir))
	}
	unix.Close(f.lock)
}

func identify(fd int) (fileIdentity, error) {
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_BTIME, &st); err != nil {
		return fileIdentity{}, os.NewSyscallError("statx", err)
	}
	id := fileIdentity{Device: unix.Mkdev(st.Dev_major, st.Dev_minor), Inode: st.Ino}
	if st.Mask&unix.STATX_BTIME != 0 {
		id.Born = st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
	}
	return id, nil
}
