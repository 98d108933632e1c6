// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/jackfield/jackfield/internal/base/deadline"
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

// Orphans lists this owner's containers that the runtime never had removed: their record is older than age, and no
// process of the host has their staging directory mounted. It leaves out containers whose processes this process
// cannot see, and containers that were recorded before a process started that this process may not inspect. A search
// that takes longer than timeout is an error.
func (s *Store) Orphans(age, timeout time.Duration) ([]Orphan, error) {
	old, err := s.records.listOld(time.Now().Add(-age))
	if err != nil || !slices.ContainsFunc(old, Orphan.isContainer) {
		return old, err
	}
	scan, err := scanMounts(s.containers.dir, timeout)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(old, func(l Orphan) bool {
		return l.isContainer() && !scan.isUnmounted(l.Container, l.recordedAt)
	}), nil
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
	errs = append(errs, s.ready.removeUnfinished(s.lock), s.SweepClaims())
	return n, errors.Join(errs...)
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
	if swept := deadline.Within(timeout, s.sockets.rights.Sweep); swept != nil {
		err = errors.Join(err, fmt.Errorf("sweep the rights of containers that are gone: %w", swept))
	}
	return n, err
}

// removeOrphan removes an orphan, unless its record was written again meanwhile.
func (s *Store) removeOrphan(l Orphan) (removed bool, err error) {
	if !l.isContainer() {
		if !modTime(filepath.Join(s.records.sandboxesDir(), l.Sandbox)).Equal(l.modified) {
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
