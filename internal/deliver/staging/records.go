// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/deliver/sockaccess"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/host/jsonstore"
)

// SandboxesDir returns the directory in stateDir that has a directory of records for each sandbox.
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

// readRecordNames lists a directory of records, of at most maxRecordNames. A missing directory is empty.
func readRecordNames(host hostfs.Root, dir string) ([]string, error) {
	names, err := host.ReadDir(dir, maxRecordNames)
	if err != nil && !errdefs.IsNotFound(err) {
		return nil, fmt.Errorf("read the records in %q: %w", dir, err)
	}
	return names, nil
}

// record is written before anything is created for a container.
type record struct {
	Owner string   `json:"owner,omitempty"` // Options.Owner of the store that staged it
	View  hostView `json:"view,omitzero"`   // how that process saw the host, in a shared state directory
	edit.Container

	rebinds map[string]int // by the socket's host path, in this process; the lock guards it
}

const (
	containerSuffix = ".container"
	bundleFile      = "bundle"
	// claimedFile keeps the record of a sandbox that has claims until the sandbox is removed.
	claimedFile = "claimed"
)

// records is the records of containers and sandboxes in a state directory. A container's record is written before
// anything is created for the container.
type records struct {
	host    hostfs.Root
	hostDir string // the state directory, as a host path
	dir     string // as a path of this process
	owner   string // Options.Owner
	shared  bool   // Options.Shared
}

func newRecords(host hostfs.Root, stateDir string, opts *Options) *records {
	return &records{host: host, hostDir: stateDir, dir: host.Path(stateDir), owner: opts.Owner, shared: opts.Shared}
}

func (rs *records) sandboxesDir() string { return SandboxesDir(rs.dir) }

func (rs *records) sandboxDir(sandboxID string) string {
	return filepath.Join(rs.sandboxesDir(), sandboxID)
}

func (rs *records) file(sandboxID, containerID string) string {
	return filepath.Join(rs.sandboxesDir(), sandboxID, containerID+containerSuffix)
}

// name returns the path of a container's record in the node's state directory.
func (rs *records) name(sandboxID, containerID string) string {
	node := rs.host.Path(nodeDir(rs.hostDir, rs.owner))
	return strings.TrimPrefix(rs.file(sandboxID, containerID), node+"/")
}

// in returns the records of a sandbox's containers. A path that leads out of the container's directory makes a record
// invalid, because removal follows the paths.
func (rs *records) in(sandboxID string) jsonstore.Store[record] {
	return jsonstore.Store[record]{Dir: rs.sandboxDir(sandboxID), MaxSize: 64 << 20,
		Check: func(file string, r *record) error {
			r.ID, r.SandboxID = strings.TrimSuffix(file, containerSuffix), sandboxID
			return validatePlaces(&r.Container)
		}}
}

// read reads a container's record. A record that is missing, invalid, or was cut short by a crash counts as a
// container of this owner with no content.
func (rs *records) read(sandboxID, containerID string) record {
	if r, _ := rs.in(sandboxID).Read(containerID + containerSuffix); r != nil {
		return *r
	}
	return record{Owner: rs.owner, Container: edit.Container{ID: containerID, SandboxID: sandboxID}}
}

// create writes a container's record. The lock is held.
func (rs *records) create(c *edit.Container) error {
	if err := unix.Mkdir(rs.sandboxDir(c.SandboxID), privateDir); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	r := record{Owner: rs.owner, Container: *c}
	if rs.shared {
		r.View = currentView()
	}
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	// Under its own name from the start: a process that is killed leaves no other file.
	if err := hostfs.CreateFile(rs.file(c.SandboxID, c.ID), data, 0o600); err != nil {
		return err
	}
	return rs.recordBundle(c)
}

// rewrite replaces a container's record atomically.
func (rs *records) rewrite(r *record) error {
	return rs.in(r.SandboxID).Write(r.ID+containerSuffix, r)
}

// hasSandbox reports whether a sandbox has a record. On an error it reports true, so that the
// sandbox keeps its claims.
func (rs *records) hasSandbox(id string) bool {
	_, err := os.Lstat(filepath.Join(rs.sandboxesDir(), id))
	return !errors.Is(err, os.ErrNotExist)
}

// markClaimed keeps the sandbox's record until the sandbox is removed.
func (rs *records) markClaimed(sandboxID string) error {
	mark := filepath.Join(rs.sandboxesDir(), sandboxID, claimedFile)
	if _, err := os.Lstat(mark); err == nil {
		return nil
	}
	return hostfs.CreateFile(mark, nil, 0o600)
}

// removeUnused removes the record of a sandbox without containers. The record of a
// sandbox that has claims stays until the sandbox is removed. A shared store may never learn of
// that, so it releases the sandbox's claims of the host's sockets with the last container. The lock is
// held, so that no container of the sandbox is recorded meanwhile.
func (rs *records) removeUnused(sandboxID string, releaseSockets func() (directories bool, err error)) error {
	sandbox := rs.sandboxDir(sandboxID)
	names, err := listNames(sandbox)
	isContent := func(name string) bool { return name != bundleFile && name != claimedFile }
	if err == nil && len(names) > 0 && !slices.ContainsFunc(names, isContent) {
		if slices.Contains(names, claimedFile) {
			if !rs.shared {
				return nil
			}
			if directories, err := releaseSockets(); err != nil || directories {
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

// listOld lists containers with an old record, and sandboxes that have no container and whose own bundle is gone.
func (rs *records) listOld(before time.Time) ([]Orphan, error) {
	view := currentView()
	// The time is zero for a record that was removed meanwhile.
	isOld := func(written time.Time) bool { return !written.IsZero() && written.Before(before) }
	sids, err := listNames(rs.sandboxesDir())
	if err != nil {
		return nil, err
	}
	var old []Orphan
	for _, sid := range sids {
		dir := filepath.Join(rs.sandboxesDir(), sid)
		ids, err := RecordedContainers(rs.host, rs.hostDir, sid)
		if err != nil {
			return nil, err
		}
		for _, cid := range ids {
			if written := modTime(rs.file(sid, cid)); isOld(written) && len(old) < maxOrphans {
				if r := rs.read(sid, cid); r.Owner == rs.owner && r.View.PIDs == view.PIDs {
					old = append(old, Orphan{sid, cid, written, r.View.At})
				}
			}
		}
		if written := modTime(dir); len(ids) == 0 && isOld(written) && len(old) < maxOrphans && rs.isBundleGone(dir, view) {
			old = append(old, Orphan{sid, "", written, 0})
		}
	}
	return old, nil
}

// recordBundle records where the runtime keeps the sandbox's own bundle: at the path of the
// container's bundle, with the sandbox's ID in place of the container's. Jackfield stages
// nothing for the sandbox's own container, so nothing else shows when the sandbox ends.
func (rs *records) recordBundle(c *edit.Container) error {
	if !rs.shared || c.ID == c.SandboxID || c.Bundle == "" {
		return nil
	}
	elems := strings.Split(c.Bundle, "/")
	i := slices.Index(elems, c.ID)
	if i < 0 {
		return nil
	}
	elems[i] = c.SandboxID
	text := strconv.FormatUint(currentView().Mounts, 10) + " " + strings.Join(elems, "/")
	return hostfs.CreateFile(filepath.Join(rs.sandboxesDir(), c.SandboxID, bundleFile), []byte(text), 0o600)
}

// isBundleGone reports whether a sandbox's recorded bundle does not exist any more. It reports
// false when this process is in another mount namespace than the one that recorded it.
func (rs *records) isBundleGone(sandbox string, view hostView) bool {
	data, _ := os.ReadFile(filepath.Join(sandbox, bundleFile)) // nothing where there is none
	bundle := parseBundle(string(data), view)
	var st unix.Stat_t
	return bundle != "" && errors.Is(unix.Lstat(rs.host.Path(bundle), &st), unix.ENOENT)
}

// parseBundle returns the host path that recordBundle wrote, "" when the record is of another mount
// namespace than view's.
func parseBundle(text string, view hostView) string {
	bundle, ok := strings.CutPrefix(text, strconv.FormatUint(view.Mounts, 10)+" ")
	if !ok || hostfs.CheckPath(bundle) != nil {
		return ""
	}
	return bundle
}

// hostView identifies the namespaces by which a process sees the host.
type hostView struct {
	PIDs   uint64 `json:"pids,omitempty"`   // inode of the PID namespace
	Mounts uint64 `json:"mounts,omitempty"` // inode of the mount namespace
	At     int64  `json:"at,omitempty"`     // when the process recorded it, in seconds since 1970
}

func currentView() hostView { return hostView{nsInode("pid"), nsInode("mnt"), time.Now().Unix()} }

// nsInode returns the inode of a namespace of this process, which identifies the namespace, or 0.
func nsInode(name string) uint64 {
	var st unix.Stat_t
	if unix.Stat("/proc/self/ns/"+name, &st) != nil {
		return 0
	}
	return st.Ino
}

// modTime returns the modification time of a file, directory or socket, or the zero time if there is none.
func modTime(path string) time.Time {
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil {
		return time.Time{}
	}
	return time.Unix(st.Mtim.Unix()).UTC()
}

// nodeDir returns the host path of the node's state directory. The state directory of an owner other
// than the NRI plugin lies in it.
func nodeDir(stateDir, owner string) string {
	if owner != "" {
		return filepath.Dir(stateDir)
	}
	return stateDir
}

// openRights returns the rights on sockets that all adapters of a node share. node is the host path of the node's state
// directory.
func openRights(host hostfs.Root, node string) *sockaccess.Rights {
	dir := host.Path(node)
	return sockaccess.New(host, filepath.Join(node, "rights"), func(name string) bool { return isRecorded(dir, name) })
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

// listNames returns the names in a directory, sorted. A missing directory has none.
func listNames(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, err
}
