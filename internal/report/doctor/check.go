// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackfield/jackfield/internal/base/deadline"
)

const (
	directoryTimeout = time.Second      // for a stat of a directory
	fewFilesTimeout  = 5 * time.Second  // for a check that reads a few files
	checkTimeout     = 30 * time.Second // for a check that reads every file of a directory
	// impatientTimeout is for every check where a directory is known to be unresponsive.
	impatientTimeout = 2 * time.Second
)

// checkDirectories reports the directories of the configuration that are unresponsive: a process
// that reads one hangs.
func (d *doctor) checkDirectories() {
	host, dirs := d.Host, d.cfg.Directories(nil)
	timedOut := make([]bool, len(dirs))
	var wg sync.WaitGroup
	for i, dir := range dirs {
		wg.Go(func() {
			err := deadline.Within(directoryTimeout, func() error {
				_, _ = host.Stat(dir.Path) // an error is an answer
				return nil
			})
			timedOut[i] = errors.Is(err, deadline.ErrTimeout)
		})
	}
	wg.Wait()
	d.unresponsive = make(map[string]bool)
	for i, dir := range dirs {
		if !timedOut[i] {
			continue
		}
		d.unresponsive[dir.Path] = true
		d.report("directories", Error, "check the file system mounted there, and whether its server or process runs; jackfield-nri uses the directory again by itself once it responds",
			"directory %s (%s) is unresponsive: a process that reads it hangs, and containers that need it are refused", dir.Path, dir.Use)
	}
}

// runCheck makes one check, and gives it up after the limit. The check works on a copy of d, which
// replaces d only when the check is done: a check that was given up may go on writing. check
// reports whether it is done.
func (d *doctor) runCheck(name string, limit time.Duration, check func(d *doctor)) bool {
	sub, reading := *d, new(atomic.Pointer[string])
	sub.findings, sub.reading, sub.settings, sub.runtimeCDI = nil, reading, maps.Clone(d.settings), maps.Clone(d.runtimeCDI)
	if len(d.unresponsive) > 0 {
		limit = min(limit, impatientTimeout)
	}
	err := deadline.Within(limit, func() error { check(&sub); return nil })
	var panicked *deadline.PanicError
	switch file := reading.Load(); {
	case err == nil:
		sub.findings = append(d.findings, sub.findings...)
		*d = sub
	case errors.As(err, &panicked):
		d.findings = append(d.findings, sub.findings...)
		d.report(name, Error, "please report it", "internal error of doctor, the check was not finished: %v", panicked.Value)
	case file != nil:
		d.report(name, Error, "check the file system mounted there, and whether its server or process runs: the runtime waits for it, too, when it starts",
			"not checked: %s did not respond within %v", *file, limit)
	default:
		d.report(name, Error, "", "not checked: not done within %v, a directory that it needs is unresponsive", limit)
	}
	return err == nil
}
