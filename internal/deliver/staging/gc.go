// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/deadline"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

const (
	// MinOrphanAge is the age at which a recorded container can be an orphan. A runtime has
	// created the container long before.
	MinOrphanAge = 10 * time.Minute

	lastSweepFile = "swept"
	// Limits of one search: records, processes, and bytes of one mount table.
	maxOrphans    = 4096
	maxProcesses  = 100000
	maxMountTable = 64 << 20
)

// Orphan is a container or sandbox that has state here and does not exist any more.
type Orphan struct {
	Sandbox    string
	Container  string // "" for a sandbox without recorded containers
	modified   time.Time
	recordedAt int64 // in seconds since 1970
}

func (l Orphan) isContainer() bool { return l.Container != "" }

// Orphans lists this owner's containers that the runtime never had removed: their record is
// older than age, and no process of the host has their staging directory mounted. It leaves
// out containers whose processes this process cannot see, and containers that were recorded
// before a process started that this process may not inspect. A search that takes longer than
// timeout is an error.
func (s *Store) Orphans(age, timeout time.Duration) ([]Orphan, error) {
	old, err := s.oldRecords(time.Now().Add(-age))
	if err != nil || !slices.ContainsFunc(old, Orphan.isContainer) {
		return old, err
	}
	scan, err := s.scanMounts(timeout)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(old, func(l Orphan) bool { return l.isContainer() && !scan.isUnmounted(l.Container, l.recordedAt) }), nil
}

// oldRecords lists containers with an old record, and sandboxes that have no container and
// whose own bundle is gone.
func (s *Store) oldRecords(before time.Time) ([]Orphan, error) {
	view := currentView()
	isOld := func(written time.Time) bool { return !written.IsZero() && written.Before(before) } // zero: it was removed meanwhile
	sids, err := listNames(s.sandboxesDir())
	if err != nil {
		return nil, err
	}
	var old []Orphan
	for _, sid := range sids {
		dir := filepath.Join(s.sandboxesDir(), sid)
		ids, err := RecordedContainers(s.host, s.hostDir, sid)
		if err != nil {
			return nil, err
		}
		for _, cid := range ids {
			if written := modTime(s.recordFile(sid, cid)); isOld(written) && len(old) < maxOrphans {
				if r := s.readRecord(sid, cid); r.Owner == s.opts.Owner && r.View.PIDs == view.PIDs {
					old = append(old, Orphan{sid, cid, written, r.View.At})
				}
			}
		}
		if written := modTime(dir); len(ids) == 0 && isOld(written) && len(old) < maxOrphans && s.isBundleGone(dir, view) {
			old = append(old, Orphan{sid, "", written, 0})
		}
	}
	return old, nil
}

// Sweep removes the [Store.Orphans] and returns how many containers and sandboxes it removed.
func (s *Store) Sweep(age, timeout time.Duration) (int, error) {
	orphans, err := s.Orphans(age, timeout)
	if err != nil {
		return 0, err
	}
	n := 0
	var errs []error
	for _, l := range orphans {
		ok, err := s.removeOrphan(l)
		if ok {
			n++
		}
		errs = append(errs, err)
	}
	errs = append(errs, s.removeUnfinished(), s.SweepClaims())
	return n, errors.Join(errs...)
}

// removeUnfinished removes the ready files that killed processes have not finished. It takes the lock only if there
// are any.
func (s *Store) removeUnfinished() error {
	names, err := listNames(s.readyDir())
	if err != nil || !slices.ContainsFunc(names, hostfs.IsUnfinished) {
		return err
	}
	return s.locked(func() error { return hostfs.RemoveUnfinished(s.readyDir()) })
}

// SweepIfDue is Sweep with [MinOrphanAge], unless a process did that within this time. It also revokes the
// access to sockets that a crash left, as [Store.Retain] does in a process that runs longer. An unresponsive
// socket root delays it by timeout at most.
func (s *Store) SweepIfDue(timeout time.Duration) (int, error) {
	file := filepath.Join(s.dir, lastSweepFile)
	now := time.Now()
	if now.Sub(modTime(file)).Abs() < MinOrphanAge {
		return 0, nil
	}
	// Set the time first, so that one of many concurrent processes sweeps.
	if err := hostfs.CreateFile(file, nil, 0o600); err != nil {
		return 0, err
	}
	if err := os.Chtimes(file, time.Time{}, now); err != nil {
		return 0, err
	}
	n, err := s.Sweep(MinOrphanAge, timeout)
	if swept := deadline.Within(timeout, s.rights.Sweep); swept != nil {
		err = errors.Join(err, fmt.Errorf("sweep the rights of containers that are gone: %w", swept))
	}
	return n, err
}

// removeOrphan removes an orphan, unless its record was written again meanwhile.
func (s *Store) removeOrphan(l Orphan) (removed bool, err error) {
	if !l.isContainer() {
		if !modTime(filepath.Join(s.sandboxesDir(), l.Sandbox)).Equal(l.modified) {
			return false, nil
		}
		return true, s.RemoveIdleSandbox(l.Sandbox)
	}
	removed, err = s.removeContainer(l.Sandbox, l.Container, l.modified)
	if removed && err == nil && l.Container == l.Sandbox {
		err = s.RemoveIdleSandbox(l.Sandbox)
	}
	return removed, err
}

// hostView identifies the namespaces by which a process sees the host.
type hostView struct {
	PIDs   uint64 `json:"pids,omitempty"`   // inode of the PID namespace
	Mounts uint64 `json:"mounts,omitempty"` // inode of the mount namespace
	At     int64  `json:"at,omitempty"`     // when the process recorded it, in seconds since 1970
}

func currentView() hostView { return hostView{nsInode("pid"), nsInode("mnt"), time.Now().Unix()} }

func nsInode(name string) uint64 {
	var st unix.Stat_t
	if unix.Stat("/proc/self/ns/"+name, &st) != nil {
		return 0
	}
	return st.Ino
}

const bundleFile = "bundle"

// recordBundle records where the runtime keeps the sandbox's own bundle: at the path of the
// container's bundle, with the sandbox's ID in place of the container's. Jackfield stages
// nothing for the sandbox's own container, so nothing else shows when the sandbox ends.
func (s *Store) recordBundle(c *edit.Container) error {
	if !s.opts.Shared || c.ID == c.SandboxID || c.Bundle == "" {
		return nil
	}
	elems := strings.Split(c.Bundle, "/")
	i := slices.Index(elems, c.ID)
	if i < 0 {
		return nil
	}
	elems[i] = c.SandboxID
	text := strconv.FormatUint(currentView().Mounts, 10) + " " + strings.Join(elems, "/")
	return hostfs.CreateFile(filepath.Join(s.sandboxesDir(), c.SandboxID, bundleFile), []byte(text), 0o600)
}

// isBundleGone reports whether a sandbox's recorded bundle does not exist any more. It reports
// false when this process is in another mount namespace than the one that recorded it.
func (s *Store) isBundleGone(sandbox string, view hostView) bool {
	data, _ := os.ReadFile(filepath.Join(sandbox, bundleFile)) // nothing where there is none
	bundle := parseBundle(string(data), view)
	var st unix.Stat_t
	return bundle != "" && errors.Is(unix.Lstat(s.host.Path(bundle), &st), unix.ENOENT)
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
