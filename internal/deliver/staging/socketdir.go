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

	"github.com/jackfield/jackfield/internal/deliver/claims"
	"github.com/jackfield/jackfield/internal/deliver/sockaccess"
	"github.com/jackfield/jackfield/internal/deliver/sockdir"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// createdDir is a directory that was created for a sandbox, as the sandbox's record has it.
type createdDir struct {
	Root   string `json:"root"`
	Rel    string `json:"rel"`
	Parent bool   `json:"parent,omitempty"` // of a socket directory: removed only when it is empty
	// Identity is that of a parent; the identity of a socket directory is in its claim. A
	// directory without one, after a crash, is removed only when it is empty.
	Identity *claims.Identity `json:"identity,omitempty"`
}

func (m createdDir) hostPath() string { return filepath.Join(m.Root, m.Rel) }

// isSame reports whether two entries are of the same directory.
func (m createdDir) isSame(o createdDir) bool {
	return m.Root == o.Root && m.Rel == o.Rel && m.Parent == o.Parent
}

const (
	createdDirsFile = "socket-dirs.json"
	// claimedFile keeps the record of a sandbox that has claims until the sandbox is
	// removed.
	claimedFile = "claimed"
)

// makeSocketDir claims a directory for the sandbox, creates it if it is missing, and opens it. It is
// recorded under the sandbox before it is created.
func (s *Store) makeSocketDir(sandboxID string, d *edit.SocketDir) (fd int, err error) {
	if fd, err = s.claimAndCreate(sandboxID, d); err != nil {
		return -1, edit.WithOrigin(d.From, fmt.Errorf("create socket directory %q: %w", filepath.Join(d.Root, d.Rel), err))
	}
	return fd, nil
}

func (s *Store) claimAndCreate(sandboxID string, d *edit.SocketDir) (fd int, err error) {
	rel := filepath.Clean(d.Rel)
	if !isLocal(rel) {
		return -1, errdefs.ErrInvalidArgument.WithMessage(fmt.Sprintf("%q is not below %q", d.Rel, d.Root))
	}
	lock, err := openLocked(filepath.Join(s.sandboxesDir(), sandboxID), unix.O_DIRECTORY, unix.LOCK_EX)
	if err != nil {
		return -1, err
	}
	defer unix.Close(lock)
	dir := filepath.Join(d.Root, rel)
	if err := s.markClaimed(sandboxID); err != nil {
		return -1, err
	}
	claim, fresh, err := s.claims.ClaimDirectory(dir, s.holder(sandboxID))
	if err != nil {
		return -1, err
	}
	defer func() {
		if err != nil && fresh {
			err = errors.Join(err, s.claims.ReleaseDirectory(dir, s.holder(sandboxID)))
		}
	}()
	parent, err := s.makeParents(sandboxID, d.Root, filepath.Dir(rel))
	if err != nil {
		return -1, err
	}
	defer unix.Close(parent)
	own := createdDir{Root: d.Root, Rel: rel}
	if !fresh && claim.Created == nil {
		if err := s.removeUnfinishedDir(sandboxID, own, parent); err != nil {
			return -1, err
		}
	}
	found, created, err := s.openOrCreate(sandboxID, own, parent)
	if err != nil {
		return -1, err
	}
	fd, err = s.finishSocketDir(d, dir, &claim, found, created)
	if err != nil || fd != found {
		unix.Close(found)
	}
	return fd, err
}

// finishSocketDir finishes a directory that was created just now, and checks any other. It returns
// the descriptor of the directory, or of the root of the file system that it mounts there.
func (s *Store) finishSocketDir(d *edit.SocketDir, dir string, claim *claims.Claim, fd int, created bool) (int, error) {
	id, err := claims.IdentityOf(fd)
	if err != nil {
		return -1, err
	}
	switch {
	case created:
		if u := d.Access.User; u != nil {
			if err := unix.Fchown(fd, int(u.UID), int(u.GID)); err != nil {
				return -1, err
			}
		}
		switch bounded, err := s.isBounded(filepath.Dir(dir)); {
		case err != nil:
			return -1, err
		case bounded:
			return sockdir.Mount(s.claims, dir, fd, s.opts.DirectorySize)
		}
		return fd, s.claims.SetCreated(dir, id, nil)
	case claim.Mounted != nil && claim.Created != nil && *claim.Created == id:
		return s.remountBounded(d, dir, fd)
	case claim.IsCreated(id):
		return fd, sockaccess.GrantDirectory(&d.Access, fd)
	case d.Granted:
		return fd, nil
	case d.Refusal != nil:
		return -1, d.Refusal
	}
	return -1, errdefs.ErrPermissionDenied.WithMessage("it existed before and was not created for this sandbox")
}

// isBounded reports whether a directory created in parent gets a file system of its own: the
// configuration has a size, and mounts made there reach the host.
func (s *Store) isBounded(parent string) (bool, error) {
	if s.opts.DirectorySize == 0 {
		return false, nil
	}
	return mountsReachHost(s.host.Path(parent))
}

// mountsReachHost reports whether mounts made in a directory propagate.
func mountsReachHost(dir string) (bool, error) {
	around, on, err := hostfs.FindMount(dir)
	if on != nil {
		around = *on
	}
	return around.Shared, err
}

// remountBounded mounts the file system of a directory after a crash between its record and its
// mount.
func (s *Store) remountBounded(d *edit.SocketDir, dir string, fd int) (root int, err error) {
	bounded, err := s.isBounded(filepath.Dir(dir))
	if err != nil {
		return -1, err
	}
	if !bounded {
		return -1, errdefs.ErrFailedPrecondition.WithMessage("the file system that limits its size is not mounted here; mount the socket root with mountPropagation HostToContainer, or re-create the pod")
	}
	if root, err = sockdir.Mount(s.claims, dir, fd, s.opts.DirectorySize); err != nil {
		return -1, err
	}
	if err := sockaccess.GrantDirectory(&d.Access, root); err != nil {
		unix.Close(root)
		return -1, err
	}
	return root, nil
}

// makeParents opens the parent of a socket directory. It creates missing directories, which root
// owns.
func (s *Store) makeParents(sandboxID, root, rel string) (fd int, err error) {
	at, err := s.host.OpenNoSymlinks(root, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil || rel == "." {
		return at, err
	}
	walked := ""
	for elem := range strings.SplitSeq(rel, "/") {
		walked = filepath.Join(walked, elem)
		m := createdDir{Root: root, Rel: walked, Parent: true}
		next, created, err := s.openOrCreate(sandboxID, m, at)
		unix.Close(at)
		if err == nil && created {
			var id claims.Identity
			if id, err = claims.IdentityOf(next); err == nil {
				m.Identity = &id
				err = s.recordCreatedDir(sandboxID, m, true)
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

// openOrCreate opens a directory in an open one. A missing directory is recorded and then
// created. A directory that another process created at the same time is not recorded.
func (s *Store) openOrCreate(sandboxID string, m createdDir, parent int) (fd int, created bool, err error) {
	name := filepath.Base(m.Rel)
	fd, err = hostfs.OpenatBeneath(parent, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if !errors.Is(err, unix.ENOENT) {
		return fd, false, err
	}
	if err := s.recordCreatedDir(sandboxID, m, true); err != nil {
		return -1, false, err
	}
	fd, err = hostfs.MkdirAt(parent, name, containerDir)
	if !errors.Is(err, unix.EEXIST) {
		return fd, err == nil, err
	}
	if err := s.recordCreatedDir(sandboxID, m, false); err != nil {
		return -1, false, err
	}
	fd, err = hostfs.OpenatBeneath(parent, name, unix.O_RDONLY|unix.O_DIRECTORY)
	return fd, false, err
}

// removeUnfinishedDir removes a directory that is recorded and whose identity no claim has, after a
// crash between the two. It removes only an empty directory.
func (s *Store) removeUnfinishedDir(sandboxID string, m createdDir, parent int) error {
	list, err := readCreatedDirs(filepath.Join(s.sandboxesDir(), sandboxID))
	if err != nil || !slices.ContainsFunc(list, m.isSame) {
		return err
	}
	return sockdir.RemoveEmpty(parent, filepath.Base(m.Rel))
}

// recordCreatedDir adds a directory to the sandbox's record, or replaces its entry. With created false
// it removes the entry.
func (s *Store) recordCreatedDir(sandboxID string, m createdDir, created bool) error {
	sandbox := filepath.Join(s.sandboxesDir(), sandboxID)
	list, err := readCreatedDirs(sandbox)
	if err != nil {
		return err
	}
	if list = slices.DeleteFunc(list, m.isSame); created {
		list = append(list, m)
	}
	data, err := json.Marshal(list)
	if err != nil {
		return err
	}
	return hostfs.ReplaceFile(filepath.Join(sandbox, createdDirsFile), data, viewFile)
}

// removeSocketDirs removes the directories that makeSocketDir created, the deepest first, with
// the sockets in them, and then the sandbox's claims. A damaged list is reported by lost, and
// not as a failure: a second attempt would not learn more.
func (s *Store) removeSocketDirs(sandboxID string) (lost, err error) {
	list, err := readCreatedDirs(filepath.Join(s.sandboxesDir(), sandboxID))
	if errdefs.IsInvalidArgument(err) {
		lost = fmt.Errorf("%w: the directories created for its sockets remain", err)
	} else if err != nil {
		return nil, err
	}
	var errs []error
	for _, m := range slices.Backward(list) {
		if err := s.removeCreatedDir(m); err != nil {
			errs = append(errs, fmt.Errorf("remove directory %q: %w", m.hostPath(), err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		// Keep the claims: the next attempt needs the identities in them.
		return lost, err
	}
	own := s.holder(sandboxID)
	return lost, s.claims.Release(func(h claims.Holder) bool { return h == own })
}

// removeCreatedDir removes a directory if it still is the one that was created.
func (s *Store) removeCreatedDir(m createdDir) error {
	parent, err := openBelowRoot(s.host, m.Root, filepath.Dir(m.Rel), unix.O_RDONLY|unix.O_DIRECTORY)
	if isAbsent(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	claim := claims.Claim{Created: m.Identity}
	if !m.Parent {
		if claim, err = s.claims.Directory(m.hostPath()); err != nil {
			return err
		}
	}
	return sockdir.Remove(parent, filepath.Base(m.Rel), &claim, m.Parent)
}

// isAbsent reports whether an error means that there is no directory at a path, or a symlink on
// the way to it.
func isAbsent(err error) bool { return errdefs.IsNotFound(err) || errdefs.IsPermissionDenied(err) }

func readCreatedDirs(sandbox string) ([]createdDir, error) {
	data, err := os.ReadFile(filepath.Join(sandbox, createdDirsFile))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	list, err := decodeCreatedDirs(data)
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", filepath.Join(sandbox, createdDirsFile), err)
	}
	return list, nil
}

func decodeCreatedDirs(data []byte) ([]createdDir, error) {
	var list []createdDir
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, errdefs.ErrInvalidArgument.WithMessage(err.Error())
	}
	for i, m := range list {
		if err := hostfs.CheckPath(m.Root); err != nil {
			return nil, fmt.Errorf("[%d].root: %w", i, err)
		}
		if !isLocal(m.Rel) {
			return nil, errdefs.ErrInvalidArgument.WithMessage(fmt.Sprintf("[%d].rel: invalid value %q: must be a path below root", i, m.Rel))
		}
	}
	return list, nil
}
