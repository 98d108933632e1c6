// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/claims"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

// DirState says whose a socket directory is.
type DirState int

const (
	// Missing is a directory that does not exist: it is created for the sandbox.
	Missing DirState = iota
	// Own was created for the sandbox, by any adapter.
	Own
	// Foreign existed before the sandbox, or was put in the place of its own.
	Foreign
)

// FindSocketDir reports whose the directory at a path below a canonical socket root is,
// for a sandbox. stateDir and owner are those of the store that is to deliver it.
func FindSocketDir(host hostfs.Root, stateDir, owner, sandboxID, root, rel string) (DirState, error) {
	f, err := host.OpenNoSymlinks(root, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return Foreign, err
	}
	defer f.Close()
	dir := filepath.Join(root, rel)
	fd, err := hostfs.OpenatBeneath(int(f.Fd()), rel, unix.O_PATH|unix.O_DIRECTORY)
	if errors.Is(err, unix.ENOENT) {
		return Missing, nil
	}
	if err != nil {
		return Foreign, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(fd)
	id, err := claims.IdentityOf(fd)
	if err != nil {
		return Foreign, err
	}
	own, err := claims.At(host, claimsPath(stateDir, owner)).Created(dir, sandboxID, id)
	if err != nil || !own {
		return Foreign, err
	}
	return Own, nil
}

// SweepClaims removes this store's claims of sandboxes that it has no record of, which
// only a crash or a lost record leaves.
func (s *Store) SweepClaims() error {
	own := s.holder("")
	return s.claims.Release(func(h claims.Holder) bool {
		return h.Adapter == own.Adapter && h.StateDir == own.StateDir && !s.hasSandbox(h.Sandbox)
	})
}

// hasSandbox reports whether a sandbox has a record. Where that cannot be told it has one:
// what it claims stays its own.
func (s *Store) hasSandbox(id string) bool {
	_, err := os.Lstat(filepath.Join(s.sandboxes(), id))
	return !errors.Is(err, os.ErrNotExist)
}

// adoptOldClaims takes over the claims of earlier versions, which hold the sandbox's ID
// alone, and which the OCI hook and inject kept in a directory of their own. Of a
// directory that such a sandbox's record says was created for it, the claim says so from
// then on. What cannot be taken over stays claimed, and nothing is created for it.
func (s *Store) adoptOldClaims() {
	old := filepath.Join(s.dir, "claims")
	moved := s.host.Path(claimsPath(s.hostDir, s.opts.Owner)) != old
	names, err := readNames(old)
	if err != nil {
		return
	}
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(old, name))
		sandbox, dir := string(data), claims.DirectoryOf(name)
		if err != nil || checkID("sandbox", sandbox) != nil || dir == "" {
			continue
		}
		if !s.hasSandbox(sandbox) {
			_ = os.Remove(filepath.Join(old, name)) // void, as earlier versions had it
			continue
		}
		if _, _, err := s.claim(sandbox, dir); err != nil && !errdefs.IsConflict(err) {
			continue
		}
		list, _ := readMade(filepath.Join(s.sandboxes(), sandbox))
		if i := slices.IndexFunc(list, func(m made) bool { return !m.Parent && m.path() == dir }); i >= 0 {
			s.adoptDirectory(list[i])
		}
		if moved {
			_ = os.Remove(filepath.Join(old, name))
		}
	}
	if moved {
		_ = os.Remove(old)
	}
}

func (s *Store) adoptDirectory(m made) {
	fd, err := s.openIn(m.Root, m.Rel, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if id, err := claims.IdentityOf(fd); err == nil {
		_ = s.claims.SetCreated(m.path(), id)
	}
}

// holdRecorded records the sockets of a container that an earlier process staged, which
// may have recorded none. One that another sandbox's directory holds is left: nothing is
// taken from a running container.
func (s *Store) holdRecorded(sandboxID, containerID string) error {
	r := s.readRecord(sandboxID, containerID)
	var errs []error
	for i := range r.Sockets {
		if err := s.holdSocket(sandboxID, r.Sockets[i].path()); err != nil && !errdefs.IsConflict(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
