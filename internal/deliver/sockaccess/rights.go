// SPDX-License-Identifier: Apache-2.0

package sockaccess

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// Rights is the directory of records of one node. It is safe for use by many processes.
type Rights struct {
	host       hostfs.Root
	dir        string // host path
	isRecorded func(container string) bool
}

// New returns the rights that are recorded in dir, a host path. The first grant creates the directory.
// isRecorded reports whether a container, as [Request] names it, still exists.
func New(host hostfs.Root, dir string, isRecorded func(container string) bool) *Rights {
	return &Rights{host: host, dir: dir, isRecorded: isRecorded}
}

// Request is one container's request for access to a socket.
type Request struct {
	Container string // as isRecorded takes it
	Access    *edit.Access
	From      string // file and field of the request, for messages
}

// isGrant reports whether the request needs a grant: root does not.
func (r *Request) isGrant() bool {
	return r.Access.Method != "" && r.Access.User != nil && r.Access.User.UID != 0
}

// isOwner reports whether the user owns the socket and can connect to it as its owner.
func (r *Request) isOwner(now ownership) bool { return now.isOwner(r.Access.User, connectRights) }

// Grant grants the users of containers access to the socket of a descriptor, and sets its SELinux label.
// It changes nothing that is already as requested, so it causes no event for the watchers of the socket.
func (r *Rights) Grant(socket string, fd int, requests []Request) error {
	var errs []error
	for _, q := range requests {
		errs = append(errs, edit.WithOrigin(q.From, setLabel(q.Access.Label, fd)))
	}
	requests = slices.DeleteFunc(slices.Clone(requests), func(q Request) bool { return !q.isGrant() })
	if len(requests) == 0 {
		return errors.Join(errs...)
	}
	rec, err := r.openRecord(socket)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	defer rec.lock.Close()
	id, now, err := inspectFile(fd) // under the lock: another process can just have changed it
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	if rec.File != id {
		rec.state = state{Socket: socket, File: id} // another socket has the path now
	}
	return errors.Join(append(errs, rec.grant(fd, now, requests))...)
}

// setLabel sets the SELinux label of the socket of a descriptor, if one is configured and SELinux is on.
func setLabel(label string, fd int) error {
	if label == "" || !hostfs.SELinuxEnabled() {
		return nil
	}
	if err := hostfs.SetSELinuxLabel(fd, label); err != nil {
		return fmt.Errorf("set the socket's SELinux label to %q: %w", label, err)
	}
	return nil
}

// Revoke revokes the access to sockets that no recorded container needs. container does not have these sockets
// any more, although it is recorded; it is "" for a container whose record was removed.
func (r *Rights) Revoke(sockets []edit.Socket, container string) error {
	var errs []error
	for i := range sockets {
		if k := &sockets[i]; k.Access.User != nil && k.Access.User.UID != 0 {
			errs = append(errs, r.revoke(k.HostPath(), container))
		}
	}
	return errors.Join(errs...)
}

// Sweep revokes the access that crashes left, for the containers of all adapters.
func (r *Rights) Sweep() error {
	dir := r.host.Path(r.dir)
	files, err := fs.Glob(os.DirFS(dir), "*/*")
	errs := []error{err}
	for _, file := range files {
		if hostfs.IsUnfinished(filepath.Base(file)) {
			errs = append(errs, r.removeUnfinished(filepath.Dir(file)))
			continue
		}
		if s, err := readState(records(filepath.Join(dir, filepath.Dir(file))), filepath.Base(file)); err != nil {
			errs = append(errs, err)
		} else if s.Socket != "" {
			errs = append(errs, r.revoke(s.Socket, ""))
		}
	}
	return errors.Join(errs...)
}

// removeUnfinished removes from a directory of records the files that killed processes have not finished.
func (r *Rights) removeUnfinished(digit string) error {
	lock, err := r.lockDir(digit)
	if err != nil {
		return err
	}
	defer lock.Close()
	return hostfs.RemoveUnfinished(r.host.Path(filepath.Join(r.dir, digit)))
}

// revoke ends the access of one container to a socket.
func (r *Rights) revoke(socket, container string) error {
	if err := r.revokeUnneeded(socket, container); err != nil {
		return fmt.Errorf("revoke access to socket %q: %w", socket, err)
	}
	return nil
}

// revokeUnneeded revokes the access to one socket that no recorded container needs.
func (r *Rights) revokeUnneeded(socket, container string) error {
	if _, err := r.host.Lstat(filepath.Join(r.dir, recordName(socket))); errdefs.IsNotFound(err) {
		return nil
	}
	// An unresponsive file system blocks here, before the lock is held that the records of other sockets have, too.
	if fd, err := r.openSocket(socket); err == nil {
		unix.Close(fd)
	}
	rec, err := r.openRecord(socket)
	if err != nil {
		return err
	}
	defer rec.lock.Close()
	if rec.Socket != socket {
		return rec.remove() // the record is damaged
	}
	rec.Holders = slices.DeleteFunc(rec.Holders, func(h holder) bool { return h.Container == container })
	fd, err := r.openSocket(socket)
	if errdefs.IsNotFound(err) || errdefs.IsPermissionDenied(err) {
		return rec.remove() // the socket was removed, with all access to it, or a symlink replaces a directory
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return rec.revoke(fd)
}

// openSocket opens a socket by its canonical path, without access to it.
func (r *Rights) openSocket(socket string) (int, error) {
	return r.host.OpenNoSymlinks(socket, unix.O_PATH|unix.O_NOFOLLOW)
}

// recordName returns the path of a socket's record in the directory. There are sixteen directories, each with its
// lock, so that a socket on an unresponsive file system does not block all others.
func recordName(socket string) string {
	sum := sha256.Sum256([]byte(socket))
	name := hex.EncodeToString(sum[:16])
	return filepath.Join(name[:1], name+".json")
}

// openRecord locks and reads a socket's record. A missing or damaged record is empty.
func (r *Rights) openRecord(socket string) (*record, error) {
	name := recordName(socket)
	lock, err := r.lockDir(filepath.Dir(name))
	if err != nil {
		return nil, err
	}
	rec := &record{records: records(hostfs.DescriptorPath(int(lock.Fd()))), file: filepath.Base(name), lock: lock,
		isRecorded: r.isRecorded}
	if rec.state, err = readState(rec.records, rec.file); err == nil && rec.Socket != "" {
		rec.before, err = json.Marshal(&rec.state)
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	return rec, nil
}

// lockDir locks a directory of records. Missing directories are created, and stay.
func (r *Rights) lockDir(digit string) (*os.File, error) {
	dir := filepath.Join(r.dir, digit)
	lock, err := r.host.MakeDir(dir, 0o700)
	if err != nil {
		return nil, err
	}
	if err := hostfs.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		lock.Close()
		return nil, &os.PathError{Op: "lock", Path: dir, Err: err}
	}
	return lock, nil
}
