// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/deliver/sockdir"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// SocketDirFinder returns the function that finds the relation of a sandbox to a directory below a socket root. stateDir
// and owner are those of the store that will deliver the directory.
func SocketDirFinder(host hostfs.Root, stateDir, owner string) func(sandboxID, root, rel string) (edit.DirState, error) {
	return openDirs(host, stateDir, owner).Find
}

// openDirs returns the directories below socket roots, whose claims all adapters of a node share.
func openDirs(host hostfs.Root, stateDir, owner string) *sockdir.Dirs {
	return sockdir.New(host, sockdir.ClaimsDir(nodeDir(stateDir, owner)))
}

// SweepClaims removes this store's claims of sandboxes that it has no record of. Only a crash
// or a lost record leaves such claims.
func (s *Store) SweepClaims() error {
	own := s.holder("")
	return s.dirs.Release(func(h sockdir.Holder) bool {
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

// holder returns the sandbox as the holder of this store's claims.
func (s *Store) holder(sandboxID string) sockdir.Holder {
	return sockdir.Holder{Sandbox: sandboxID, Adapter: cmp.Or(s.opts.Owner, sockdir.NRI), StateDir: s.hostDir}
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
	held, err := s.dirs.HoldSockets(paths, s.holder(sandboxID))
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

// claimedFile keeps the record of a sandbox that has claims until the sandbox is removed.
const claimedFile = "claimed"

// makeSocketDir claims a directory for the sandbox, creates it if it is missing, and opens it.
func (s *Store) makeSocketDir(sandboxID string, d *edit.SocketDir) (fd int, err error) {
	if fd, err = s.createSocketDir(sandboxID, d); err != nil {
		return -1, edit.WithOrigin(d.From, fmt.Errorf("create socket directory %q: %w", filepath.Join(d.Root, d.Rel), err))
	}
	return fd, nil
}

// createSocketDir creates one directory of a sandbox at a time.
func (s *Store) createSocketDir(sandboxID string, d *edit.SocketDir) (fd int, err error) {
	lock, err := openLocked(filepath.Join(s.sandboxesDir(), sandboxID), unix.O_DIRECTORY, unix.LOCK_EX)
	if err != nil {
		return -1, err
	}
	defer unix.Close(lock)
	if err := s.markClaimed(sandboxID); err != nil {
		return -1, err
	}
	return s.dirs.Create(s.holder(sandboxID), d, s.opts.DirectorySize)
}
