// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/deliver/claims"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// FindSocketDir returns the relation of a sandbox to the directory at a path below a canonical
// socket root. stateDir and owner are those of the store that will deliver the directory.
func FindSocketDir(host hostfs.Root, stateDir, owner, sandboxID, root, rel string) (edit.DirState, error) {
	fd, err := openBelowRoot(host, root, rel, unix.O_PATH|unix.O_DIRECTORY)
	if errors.Is(err, unix.ENOENT) {
		_, err = host.StatNoSymlinks(root) // without its root, it cannot be created
		return edit.MissingDir, err
	}
	if err != nil {
		return edit.ForeignDir, err
	}
	defer unix.Close(fd)
	id, err := claims.IdentityOf(fd)
	if err != nil {
		return edit.ForeignDir, err
	}
	own, err := claims.Open(host, claimsPath(stateDir, owner)).Created(filepath.Join(root, rel), sandboxID, id)
	if err != nil || !own {
		return edit.ForeignDir, err
	}
	return edit.OwnDir, nil
}

// SocketDirFinder returns FindSocketDir for the store of a state directory and owner.
func SocketDirFinder(host hostfs.Root, stateDir, owner string) func(sandboxID, root, rel string) (edit.DirState, error) {
	return func(sandboxID, root, rel string) (edit.DirState, error) {
		return FindSocketDir(host, stateDir, owner, sandboxID, root, rel)
	}
}

// SweepClaims removes this store's claims of sandboxes that it has no record of. Only a crash
// or a lost record leaves such claims.
func (s *Store) SweepClaims() error {
	own := s.holder("")
	return s.claims.Release(func(h claims.Holder) bool {
		return h.Adapter == own.Adapter && h.StateDir == own.StateDir && !s.hasSandbox(h.Sandbox)
	})
}

// hasSandbox reports whether a sandbox has a record. On an error it reports true, so that the
// sandbox keeps its claims.
func (s *Store) hasSandbox(id string) bool {
	_, err := os.Lstat(filepath.Join(s.sandboxesDir(), id))
	return !errors.Is(err, os.ErrNotExist)
}

// nodeDir returns the host path of the node's state directory. The state directory of an owner other
// than the NRI plugin lies in it.
func nodeDir(stateDir, owner string) string {
	if owner != "" {
		return filepath.Dir(stateDir)
	}
	return stateDir
}

// claimsPath returns the host path of the node's claims.
func claimsPath(stateDir, owner string) string { return claims.Path(nodeDir(stateDir, owner)) }

// holder returns the sandbox as the holder of this store's claims.
func (s *Store) holder(sandboxID string) claims.Holder {
	return claims.Holder{Sandbox: sandboxID, Adapter: cmp.Or(s.opts.Owner, claims.NRI), StateDir: s.hostDir}
}

// holdSockets marks the sandbox's record and claims sockets of the host for the sandbox.
func (s *Store) holdSockets(sandboxID string, sockets []edit.Socket) error {
	if len(sockets) == 0 {
		return nil
	}
	if err := s.markClaimed(sandboxID); err != nil {
		return err
	}
	paths := make([]string, len(sockets))
	for i := range sockets {
		paths[i] = sockets[i].HostPath()
	}
	held, err := s.claims.HoldSockets(paths, s.holder(sandboxID))
	if err != nil {
		return edit.WithOrigin(sockets[held].From, err)
	}
	return nil
}

// markClaimed keeps the sandbox's record until the sandbox is removed.
func (s *Store) markClaimed(sandboxID string) error {
	mark := filepath.Join(s.sandboxesDir(), sandboxID, claimedFile)
	if _, err := os.Lstat(mark); err == nil {
		return nil
	}
	return hostfs.CreateFile(mark, nil, 0o600)
}
