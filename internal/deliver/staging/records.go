// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/deliver/sockaccess"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// SandboxesDir returns the directory in stateDir that has a directory of records for each
// sandbox.
func SandboxesDir(stateDir string) string { return path.Join(stateDir, "sandboxes") }

// maxRecordNames limits how many names of a directory of records are read.
const maxRecordNames = 1 << 16

// RecordedContainers returns the IDs of a sandbox's recorded containers, sorted. It is for a
// process that inspects another process's state directory. An unknown sandbox has none.
func RecordedContainers(host hostfs.Root, stateDir, sandboxID string) ([]string, error) {
	names, err := readRecordNames(host, path.Join(SandboxesDir(stateDir), sandboxID))
	var ids []string
	for _, name := range names {
		if id, ok := strings.CutSuffix(name, containerSuffix); ok && hostfs.CheckID(id) == nil {
			ids = append(ids, id)
		}
	}
	return ids, err
}

// RecordedSandboxes returns the sandboxes that have a record of a container, normally one.
func RecordedSandboxes(host hostfs.Root, stateDir, containerID string) ([]string, error) {
	names, err := readRecordNames(host, SandboxesDir(stateDir))
	var ids []string
	for _, id := range names {
		switch _, unread := host.Lstat(path.Join(SandboxesDir(stateDir), id, containerID+containerSuffix)); {
		case unread == nil:
			ids = append(ids, id)
		case !errdefs.IsNotFound(unread) && hostfs.Errno(unread) != unix.ENOTDIR && err == nil:
			err = unread
		}
	}
	return ids, err
}

func readRecordNames(host hostfs.Root, dir string) ([]string, error) {
	names, err := host.ReadDir(dir, maxRecordNames)
	if err != nil && !errdefs.IsNotFound(err) {
		return nil, fmt.Errorf("read the records in %q: %w", dir, err)
	}
	return names, nil
}

// removeUnusedSandboxRecord removes the record of a sandbox without containers. The record of a
// sandbox that has claims stays until the sandbox is removed. A shared store may never learn of
// that, so it releases the sandbox's claims of the host's sockets with the last container. The lock is
// held, so that no container of the sandbox is recorded meanwhile.
func (s *Store) removeUnusedSandboxRecord(sandboxID string) error {
	sandbox := filepath.Join(s.sandboxesDir(), sandboxID)
	names, err := listNames(sandbox)
	if err == nil && len(names) > 0 && !slices.ContainsFunc(names, func(name string) bool { return name != bundleFile && name != claimedFile }) {
		if slices.Contains(names, claimedFile) {
			if !s.opts.Shared {
				return nil
			}
			if directories, err := s.dirs.ReleaseSockets(s.holder(sandboxID)); err != nil || directories {
				return err
			}
		}
		for _, name := range names {
			if err := os.Remove(filepath.Join(sandbox, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
	}
	err = os.Remove(sandbox)
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENOTEMPTY) {
		return fmt.Errorf("remove record of sandbox %q: %w", sandboxID, err)
	}
	return nil
}

// record is written before anything is created for a container.
type record struct {
	Owner string   `json:"owner,omitempty"` // Options.Owner of the store that staged it
	View  hostView `json:"view,omitzero"`   // how that process saw the host, in a shared state directory
	edit.Container

	rebinds map[string]int // by the socket's host path, in this process; Store.mu guards it
}

const containerSuffix = ".container"

func (s *Store) recordFile(sandboxID, containerID string) string {
	return filepath.Join(s.sandboxesDir(), sandboxID, containerID+containerSuffix)
}

// readRecord reads a container's record. A record that is empty or was cut short by a crash
// counts as a container of this owner with no content.
func (s *Store) readRecord(sandboxID, containerID string) record {
	data, _ := os.ReadFile(s.recordFile(sandboxID, containerID)) // nothing where it cannot be read
	return decodeRecord(data, s.opts.Owner, sandboxID, containerID)
}

// decodeRecord decodes a record. An invalid record, and one with a path that leads out of the
// container's directory, counts as empty, because removal follows its paths.
func decodeRecord(data []byte, owner, sandboxID, containerID string) record {
	unknown := record{Owner: owner, Container: edit.Container{ID: containerID, SandboxID: sandboxID}}
	var r record
	if json.Unmarshal(data, &r) != nil {
		return unknown
	}
	r.ID, r.SandboxID = containerID, sandboxID
	if validatePlaces(&r.Container) != nil {
		return unknown
	}
	return r
}

// recordContainer writes the record, before anything is created. From then on no rebinder mounts
// anything in the container's directory, until it is staged. The lock is held.
func (s *Store) recordContainer(c *edit.Container) error {
	s.untrackContainer(c.ID)
	if err := s.unmarkReady(c.ID); err != nil {
		return err
	}
	if err := unix.Mkdir(filepath.Join(s.sandboxesDir(), c.SandboxID), privateDir); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	r := record{Owner: s.opts.Owner, Container: *c}
	if s.opts.Shared {
		r.View = currentView()
	}
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	// Under its own name from the start: a process that is killed leaves no other file.
	if err := hostfs.CreateFile(s.recordFile(c.SandboxID, c.ID), data, 0o600); err != nil {
		return err
	}
	return s.recordBundle(c)
}

// rewriteRecord replaces a container's record atomically.
func (s *Store) rewriteRecord(r *record) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return hostfs.ReplaceFile(s.recordFile(r.SandboxID, r.ID), data, 0o600)
}

// openRights returns the rights on sockets that all adapters of a node share. node is the host path of the node's state
// directory.
func openRights(host hostfs.Root, node string) *sockaccess.Rights {
	dir := host.Path(node)
	return sockaccess.New(host, filepath.Join(node, "rights"), func(name string) bool { return isRecorded(dir, name) })
}

// recordName returns the path of a container's record in the node's state directory.
func (s *Store) recordName(sandboxID, containerID string) string {
	node := s.host.Path(nodeDir(s.hostDir, s.opts.Owner))
	return strings.TrimPrefix(s.recordFile(sandboxID, containerID), node+"/")
}

// isRecorded reports whether a record exists in a node's state directory. If the store that has the record cannot be
// read, it reports true: no running container loses access because a check failed.
func isRecorded(node, name string) bool {
	if !isLocal(name) {
		return false
	}
	if _, err := os.Lstat(filepath.Join(node, name)); !errors.Is(err, os.ErrNotExist) {
		return true
	}
	store, _, _ := strings.Cut(name, "sandboxes/")
	_, err := os.Lstat(filepath.Join(node, store, "sandboxes"))
	return err != nil
}
