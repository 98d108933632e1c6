// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/claims"
	"github.com/jackfield/jackfield/internal/socketdir"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

// made is one directory that was created, as a sandbox's record has it.
type made struct {
	Root   string `json:"root"`
	Rel    string `json:"rel"`
	Parent bool   `json:"parent,omitempty"` // on the way to a socket directory: removed only when it is empty
	// Identity is that of a parent. The claim has that of a socket directory. Without
	// one, after a crash, the directory is removed only when it is empty.
	Identity *claims.Identity `json:"identity,omitempty"`
}

func (m made) path() string { return filepath.Join(m.Root, m.Rel) }

// same reports whether two entries are of one directory.
func (m made) same(o made) bool { return m.Root == o.Root && m.Rel == o.Rel && m.Parent == o.Parent }

const (
	madeFile = "socket-dirs.json"
	// claimedFile keeps the record of a sandbox that has claims until the sandbox is
	// removed.
	claimedFile = "claimed"
)

// claimsPath is the host path of the node's claims. The state directory of an owner lies
// in that of the node.
func claimsPath(stateDir, owner string) string {
	if owner != "" {
		stateDir = filepath.Dir(stateDir)
	}
	return claims.Path(stateDir)
}

// holder is the sandbox as this store claims for it.
func (s *Store) holder(sandboxID string) claims.Holder {
	adapter := s.opts.Owner
	if adapter == "" {
		adapter = claims.NRI
	}
	return claims.Holder{Sandbox: sandboxID, Adapter: adapter, StateDir: s.hostDir}
}

// claim claims a directory for a sandbox, after marking the sandbox's record.
func (s *Store) claim(sandboxID, dir string) (c claims.Claim, fresh bool, err error) {
	if err := s.markClaimed(sandboxID); err != nil {
		return c, false, err
	}
	return s.claims.ClaimDirectory(dir, s.holder(sandboxID))
}

// holdSocket records that a sandbox has a socket of the host.
func (s *Store) holdSocket(sandboxID, socket string) error {
	if err := s.markClaimed(sandboxID); err != nil {
		return err
	}
	return s.claims.HoldSocket(socket, s.holder(sandboxID))
}

func (s *Store) markClaimed(sandboxID string) error {
	return create(filepath.Join(s.sandboxes(), sandboxID, claimedFile), nil, 0o600)
}

// makeSocketDirs claims the directories for the sandbox and creates what is
// missing. Each is written down in the sandbox's record first.
func (s *Store) makeSocketDirs(sandboxID string, dirs []SocketDir) error {
	for i := range dirs {
		d := &dirs[i]
		if err := s.makeSocketDir(sandboxID, d); err != nil {
			return asked(d.From, fmt.Errorf("make socket directory %q: %w", filepath.Join(d.Root, d.Rel), err))
		}
	}
	return nil
}

func (s *Store) makeSocketDir(sandboxID string, d *SocketDir) (err error) {
	rel := filepath.Clean(d.Rel)
	if !local(rel) {
		return fmt.Errorf("%q is not below %q: %w", d.Rel, d.Root, errdefs.ErrInvalidArgument)
	}
	unlock, err := s.lockSandbox(sandboxID)
	if err != nil {
		return err
	}
	defer unlock()
	dir := filepath.Join(d.Root, rel)
	claim, fresh, err := s.claim(sandboxID, dir)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil && fresh {
			err = errors.Join(err, s.claims.ReleaseDirectory(dir, s.holder(sandboxID)))
		}
	}()
	parent, err := s.makeParents(sandboxID, d.Root, filepath.Dir(rel))
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	own := made{Root: d.Root, Rel: rel}
	if !fresh && claim.Created == nil {
		if err := s.removeUnfinished(sandboxID, own, parent); err != nil {
			return err
		}
	}
	fd, created, err := s.openOrCreate(sandboxID, own, parent)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if d.found, err = claims.IdentityOf(fd); err != nil {
		return err
	}
	switch {
	case created:
		if err := chown(fd, d); err != nil {
			return err
		}
		bounded, err := s.isBounded(filepath.Dir(dir))
		if err != nil {
			return err
		}
		if bounded {
			d.found, err = socketdir.Mount(s.claims, dir, fd, s.opts.DirectorySize)
			return err
		}
		return s.claims.SetCreated(dir, d.found)
	case claim.Mounted != nil && claim.Created != nil && *claim.Created == d.found:
		return s.mountAgain(d, dir, parent, fd)
	case claim.IsCreated(d.found):
		return letMake(d, fd)
	case d.Granted:
		return nil
	case d.Refusal != nil:
		return d.Refusal
	}
	return fmt.Errorf("it existed before and was not created for this sandbox: %w", errdefs.ErrPermissionDenied)
}

// isBounded reports whether directories that are created in parent get a file system of
// their own: where the configuration has a size, and the mount reaches the host.
func (s *Store) isBounded(parent string) (bool, error) {
	if s.opts.DirectorySize == 0 {
		return false, nil
	}
	return mountsReachHost(s.host.Path(parent))
}

// mountsReachHost reports whether what is mounted in a directory is propagated.
func mountsReachHost(dir string) (bool, error) {
	around, on, err := mountsAt(dir)
	if on != nil {
		around = *on
	}
	return around.Shared, err
}

// mountAgain mounts the file system of a directory that has none: a crash came between
// its record and its mount.
func (s *Store) mountAgain(d *SocketDir, dir string, parent, fd int) error {
	bounded, err := s.isBounded(filepath.Dir(dir))
	if err != nil {
		return err
	}
	if !bounded {
		return fmt.Errorf("the file system that bounds it is not mounted here; mount the socket root with mountPropagation HostToContainer, or re-create the pod: %w",
			errdefs.ErrFailedPrecondition)
	}
	if d.found, err = socketdir.Mount(s.claims, dir, fd, s.opts.DirectorySize); err != nil {
		return err
	}
	root, err := hostfs.OpenatBeneath(parent, filepath.Base(dir), unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(root)
	return letMake(d, root)
}

// lockSandbox locks a sandbox's record for those who create its directories.
func (s *Store) lockSandbox(sandboxID string) (unlock func(), err error) {
	dir := filepath.Join(s.sandboxes(), sandboxID)
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	for {
		if err = unix.Flock(fd, unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		unix.Close(fd)
		return nil, &os.PathError{Op: "lock", Path: dir, Err: err}
	}
	return func() { unix.Close(fd) }, nil
}

// makeParents opens the directory that a socket directory lies in. What is missing of it
// is created, and stays root's.
func (s *Store) makeParents(sandboxID, root, rel string) (fd int, err error) {
	f, err := s.host.OpenNoSymlinks(root, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return -1, err
	}
	defer f.Close()
	at, err := hostfs.OpenatBeneath(int(f.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil || rel == "." {
		return at, err
	}
	walked := ""
	for elem := range strings.SplitSeq(rel, "/") {
		walked = filepath.Join(walked, elem)
		m := made{Root: root, Rel: walked, Parent: true}
		next, created, err := s.openOrCreate(sandboxID, m, at)
		unix.Close(at)
		if err == nil && created {
			var id claims.Identity
			if id, err = claims.IdentityOf(next); err == nil {
				m.Identity = &id
				err = s.record(sandboxID, m)
			}
		}
		if err != nil {
			if next >= 0 {
				unix.Close(next)
			}
			return -1, err
		}
		at = next
	}
	return at, nil
}

// openOrCreate opens a directory in an open one, and creates it where it is missing, for
// which it is recorded first. One that somebody else created at the same time is not
// recorded.
func (s *Store) openOrCreate(sandboxID string, m made, parent int) (fd int, created bool, err error) {
	name := filepath.Base(m.Rel)
	fd, err = hostfs.OpenatBeneath(parent, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if !errors.Is(err, unix.ENOENT) {
		return fd, false, err
	}
	if err := s.record(sandboxID, m); err != nil {
		return -1, false, err
	}
	fd, err = hostfs.MkdirAt(parent, name, containerDir)
	if !errors.Is(err, unix.EEXIST) {
		return fd, err == nil, err
	}
	if err := s.unrecord(sandboxID, m); err != nil {
		return -1, false, err
	}
	fd, err = hostfs.OpenatBeneath(parent, name, unix.O_RDONLY|unix.O_DIRECTORY)
	return fd, false, err
}

// removeUnfinished removes a directory that is recorded, and of which no claim says which
// one it is: a crash came between. It goes only when it is empty.
func (s *Store) removeUnfinished(sandboxID string, m made, parent int) error {
	list, err := readMade(filepath.Join(s.sandboxes(), sandboxID))
	if err != nil || !slices.ContainsFunc(list, m.same) {
		return err
	}
	return removeEmpty(parent, filepath.Base(m.Rel))
}

// letMake lets the container's user make sockets in a directory that was created for its
// sandbox, and that is removed with it: nobody later inherits the right.
func letMake(d *SocketDir, fd int) error {
	if d.UID <= 0 || d.GID < 0 || d.Way == "" {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	a := Access{Way: d.Way, User: &User{UID: uint32(d.UID), GID: uint32(d.GID)}}
	return a.let(fd, &st, "directory", toMake)
}

func chown(fd int, d *SocketDir) error {
	if d.UID < 0 && d.GID < 0 {
		return nil
	}
	return unix.Fchown(fd, d.UID, d.GID)
}

// record adds a directory to what the sandbox's end removes, or replaces its entry.
func (s *Store) record(sandboxID string, m made) error {
	return s.changeRecord(sandboxID, func(list []made) []made {
		return append(slices.DeleteFunc(list, m.same), m)
	})
}

// unrecord takes a directory out of it.
func (s *Store) unrecord(sandboxID string, m made) error {
	return s.changeRecord(sandboxID, func(list []made) []made { return slices.DeleteFunc(list, m.same) })
}

func (s *Store) changeRecord(sandboxID string, change func([]made) []made) error {
	sandbox := filepath.Join(s.sandboxes(), sandboxID)
	list, err := readMade(sandbox)
	if err != nil {
		return err
	}
	data, err := json.Marshal(change(list))
	if err != nil {
		return err
	}
	return s.replace(sandbox, madeFile, data)
}

// removeSocketDirs removes the directories that makeSocketDirs created, the deepest
// first, with the sockets that applications left in them, and then the sandbox's claims.
// A list that a disk lost is reported by lost, since a second attempt would not learn
// more of what was created.
func (s *Store) removeSocketDirs(sandboxID string) (lost, err error) {
	list, err := readMade(filepath.Join(s.sandboxes(), sandboxID))
	if errdefs.IsInvalidArgument(err) {
		lost = fmt.Errorf("%w: what was made for sockets below the socket roots is left", err)
	} else if err != nil {
		return nil, err
	}
	var errs []error
	for _, m := range slices.Backward(list) {
		if err := s.removeMade(m); err != nil {
			errs = append(errs, fmt.Errorf("remove directory %q: %w", m.path(), err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		// The claims say which directories are the sandbox's, for the next attempt.
		return lost, err
	}
	own := s.holder(sandboxID)
	return lost, s.claims.Release(func(h claims.Holder) bool {
		// Earlier versions of the NRI plugin did not say who claims.
		return h == own || own.Adapter == claims.NRI && h == claims.Holder{Sandbox: sandboxID}
	})
}

// removeMade removes one directory, where it still is the one that was created.
func (s *Store) removeMade(m made) error {
	root, err := s.host.OpenNoSymlinks(m.Root, unix.O_PATH|unix.O_DIRECTORY)
	if isAbsent(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	parent, err := hostfs.OpenatBeneath(int(root.Fd()), filepath.Dir(m.Rel), unix.O_RDONLY|unix.O_DIRECTORY)
	if isAbsent(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	name := filepath.Base(m.Rel)
	var claim claims.Claim
	want := m.Identity
	if !m.Parent {
		if claim, err = s.claims.Directory(m.path()); err != nil {
			return err
		}
		want = claim.Created
	}
	found, err := socketdir.Unmount(parent, name, &claim)
	if isAbsent(err) {
		return nil
	}
	if err != nil {
		return err
	}
	switch {
	case want != nil && *want != found:
		return nil // somebody put another directory in its place
	case want == nil || m.Parent:
		return removeEmpty(parent, name)
	}
	return hostfs.RemoveTreeAt(parent, name)
}

// isAbsent reports whether there is no directory at a path: nothing, something else, or
// a symlink on the way to it.
func isAbsent(err error) bool { return errdefs.IsNotFound(err) || errdefs.IsPermissionDenied(err) }

// removeEmpty removes a directory in an open one when it is empty. It removes nothing
// that is not a directory.
func removeEmpty(parent int, name string) error {
	err := unix.Unlinkat(parent, name, unix.AT_REMOVEDIR)
	for _, kept := range []error{unix.ENOENT, unix.ENOTEMPTY, unix.EEXIST, unix.EBUSY, unix.ENOTDIR} {
		if errors.Is(err, kept) {
			return nil
		}
	}
	return err
}

func readMade(sandbox string) ([]made, error) {
	data, err := os.ReadFile(filepath.Join(sandbox, madeFile))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	list, err := decodeMade(data)
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", filepath.Join(sandbox, madeFile), err)
	}
	return list, nil
}

func decodeMade(data []byte) ([]made, error) {
	var list []made
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
	}
	for i, m := range list {
		if err := hostfs.CheckPath(m.Root); err != nil {
			return nil, fmt.Errorf("[%d].root: %w", i, err)
		}
		if !local(m.Rel) {
			return nil, fmt.Errorf("[%d].rel: found %q, want a path below root: %w", i, m.Rel, errdefs.ErrInvalidArgument)
		}
	}
	return list, nil
}
