// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"errors"
	"path/filepath"
	"time"
)

const (
	// maxCreationTime is longer than a runtime takes to create a container that it does not report yet.
	maxCreationTime = 2 * time.Minute
	// clockGranularity bounds how far the time stamps of a file system lag behind the clock.
	clockGranularity = 20 * time.Millisecond
)

// This file compares the state directory with the runtime's list of living containers. A process without this list
// finds removed containers by their age and by the mounts of processes, see [Store.Orphans].

// Retain removes this owner's sandboxes and containers that do not exist any more, and staging directories without a
// record. It is for the start of a process, after the runtime has reported the existing containers. It tracks all
// other containers, of any owner: sockets that were re-created meanwhile are rebound, and all are watched.
//
// A container that was recorded a moment ago, of a sandbox that exists, stays: the runtime can
// be creating it. If it was never created, it is removed with its sandbox.
//
// asOf is when the runtime's report arrived. Retain can run later, while containers are created that the report does
// not know, so everything recorded after asOf stays. The zero time is for a report that knows everything.
func (s *Store) Retain(asOf time.Time, aliveSandbox, aliveContainer func(id string) bool) error {
	sandboxes, err := listNames(s.records.sandboxesDir())
	if err != nil {
		return err
	}
	known := make(map[string]bool)
	var errs []error
	var removals []func() error // once all others are tracked: a removal can wait for a file system
	if s.opts.Watch && s.containers.status.Mode == ModeMount {
		errs = append(errs, s.lock.run(s.containers.finishInterruptedSwaps))
	}
	for _, sid := range sandboxes {
		stays := aliveSandbox(sid) || changedSince(asOf, filepath.Join(s.records.sandboxesDir(), sid))
		ids, err := RecordedContainers(s.host, s.records.hostDir, sid)
		errs = append(errs, err)
		foreign := false
		for _, cid := range ids {
			switch r := s.records.read(sid, cid); {
			case r.Owner != s.opts.Owner:
				foreign = true
			case !stays:
				continue
			case changedSince(asOf, s.records.file(sid, cid)):
				known[cid] = true // Prepare tracks it
				continue
			case !aliveContainer(cid) && time.Since(modTime(s.records.file(sid, cid))) > maxCreationTime:
				removals = append(removals, func() error { return s.RemoveContainer(sid, cid) })
				continue
			}
			known[cid] = true
			errs = append(errs, s.tracker.trackRecorded(sid, cid))
		}
		if !foreign && !stays {
			removals = append(removals, func() error { return s.RemoveSandbox(sid) })
		}
	}
	for _, remove := range removals {
		errs = append(errs, remove())
	}
	errs = append(errs, s.sockets.rights.Sweep(), s.SweepClaims())
	containers, err := listNames(s.containers.dir)
	errs = append(errs, err)
	for _, cid := range containers {
		if !known[cid] && !aliveContainer(cid) && !changedSince(asOf, filepath.Join(s.containers.dir, cid)) {
			errs = append(errs, s.lock.run(func() error { return s.containers.removeTree(cid) }))
		}
	}
	return errors.Join(errs...)
}

// changedSince reports whether a file or directory was created or changed after asOf.
func changedSince(asOf time.Time, path string) bool {
	return !asOf.IsZero() && modTime(path).After(asOf.Add(-clockGranularity))
}
