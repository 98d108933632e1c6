// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// Access to sockets of the host is recorded before it is granted, in the node's state directory:
//
//	<state>/rights/<digit>/<name>.json   what was changed at one socket, and for which containers
//	<state>/rights/<digit>/              locked (flock) while one of its records changes
//
// The stores of all adapters share the records. A grant ends with the last recorded container
// that needs it. Nothing is revoked that was not recorded, so an administrator's own ACL entries
// stay.

// socketRights is the record of one socket.
type socketRights struct {
	Socket      string         `json:"socket"` // host path
	Root        string         `json:"root"`   // host path of its socket root
	File        fileIdentity   `json:"file"`   // the socket that was changed; a socket that replaced it was not
	Entries     []aclGrant     `json:"entries,omitempty"`
	OwnerChange *ownerChange   `json:"ownerChange,omitempty"`
	Holders     []rightsHolder `json:"holders"`
}

// fileIdentity identifies a file, also after its inode number was reused.
type fileIdentity struct {
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
	Born   int64  `json:"born,omitempty"` // creation time in nanoseconds since 1970, 0 where the file system has none
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

// rightsHolder is a container that needs a grant.
type rightsHolder struct {
	Record string            `json:"record"` // path of the container's record in the node's state directory
	Method edit.AccessMethod `json:"method"` // the method that worked
	User   edit.User         `json:"user"`
}

func (s *Store) nodeDir() string { return nodeDir(s.hostDir, s.opts.Owner) }

func (s *Store) rightsDir() string { return s.host.Path(filepath.Join(s.nodeDir(), "rights")) }

// recordName returns the path of a container's record as rightsHolder has it.
func (s *Store) recordName(sandboxID, containerID string) string {
	return strings.TrimPrefix(s.recordFile(sandboxID, containerID), s.host.Path(s.nodeDir())+"/")
}

// hasRecord reports whether the container of a holder is recorded. If the store that has the
// record cannot be read, it reports true: nothing is taken from a running container because a
// check failed.
func (s *Store) hasRecord(name string) bool {
	if !isLocal(name) {
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

// rightsFile is a socket's record, open and locked.
type rightsFile struct {
	socketRights
	path   string
	lock   *os.File
	onDisk []byte // what the file holds
}

const rightsSuffix = ".json"

// rightsName returns the path of a socket's record in rights/. There are sixteen directories, each
// with its lock, so that a socket on an unresponsive file system does not block all others.
func rightsName(socket string) string {
	sum := sha256.Sum256([]byte(socket))
	name := hex.EncodeToString(sum[:16])
	return filepath.Join(name[:1], name+rightsSuffix)
}

// openRights locks and reads a socket's record. A missing or damaged record is empty.
func (s *Store) openRights(socket string) (*rightsFile, error) {
	rel := rightsName(socket)
	lock, err := s.lockRights(filepath.Join(s.nodeDir(), "rights", filepath.Dir(rel)))
	if err != nil {
		return nil, err
	}
	r, onDisk, err := s.readRights(rel)
	if err != nil {
		lock.Close()
		return nil, err
	}
	return &rightsFile{r, filepath.Join(s.rightsDir(), rel), lock, onDisk}, nil
}

// lockRights locks a directory of records, a host path. Missing directories are created, and stay.
func (s *Store) lockRights(dir string) (*os.File, error) {
	lock, err := s.host.MakeDir(dir, privateDir)
	if err != nil {
		return nil, err
	}
	if err := hostfs.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		lock.Close()
		return nil, &os.PathError{Op: "lock", Path: dir, Err: err}
	}
	return lock, nil
}

// maxRights limits a record, in bytes. A socket that all pods of a node share has a holder for
// each container.
const maxRights = 4 << 20

// readRights reads the record at a path in rights/. A missing record is empty.
func (s *Store) readRights(name string) (r socketRights, onDisk []byte, err error) {
	onDisk, err = s.host.ReadFile(filepath.Join(s.nodeDir(), "rights", name), maxRights)
	return decodeRights(onDisk), onDisk, hostfs.IgnoreNotFound(err)
}

// decodeRights decodes a record. An invalid record is empty.
func decodeRights(data []byte) socketRights {
	var r socketRights
	if json.Unmarshal(data, &r) != nil || hostfs.CheckPath(r.Socket) != nil || hostfs.CheckPath(r.Root) != nil || !strings.HasPrefix(r.Socket, r.Root+"/") {
		return socketRights{}
	}
	return r
}

func (f *rightsFile) addHolder(r rightsRequest, method edit.AccessMethod) {
	h := rightsHolder{r.record, method, *r.access.User}
	if !slices.Contains(f.Holders, h) {
		f.Holders = append(f.Holders, h)
	}
}

// writeRecord writes the record atomically if it has changed. There is none of a socket that was not
// changed.
func (f *rightsFile) writeRecord() error {
	data, err := json.Marshal(&f.socketRights)
	if err != nil || bytes.Equal(data, f.onDisk) || f.onDisk == nil && len(f.Holders) == 0 {
		return err
	}
	if err := hostfs.ReplaceFile(f.path, data, 0o600); err != nil {
		return fmt.Errorf("record the socket's rights: %w", err)
	}
	f.onDisk = data
	return nil
}

func (f *rightsFile) remove() error {
	if err := os.Remove(f.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// inspectFile returns the identity of an open file, and who owns it.
func inspectFile(fd int) (fileIdentity, ownership, error) {
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st); err != nil {
		return fileIdentity{}, ownership{}, os.NewSyscallError("statx", err)
	}
	id := fileIdentity{Device: unix.Mkdev(st.Dev_major, st.Dev_minor), Inode: st.Ino}
	if st.Mask&unix.STATX_BTIME != 0 {
		id.Born = st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
	}
	return id, ownership{st.Uid, st.Gid, uint32(st.Mode) & 0o7777}, nil
}
