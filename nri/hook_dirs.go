// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"reflect"
	"sync/atomic"
	"time"

	"github.com/jackfield/jackfield/internal/base/deadline"
	"github.com/jackfield/jackfield/internal/source/hooksd"
)

// hooksCheckInterval is how often hooks.d directories are checked while no container is created.
const hooksCheckInterval = 2 * time.Second

// hookDirs logs the problems of the hooks.d directories that the configuration lists. The engine reads the
// hooks itself.
type hookDirs struct {
	*daemon
	current func() *core
	last    atomic.Pointer[hooksd.Snapshot] // the last report; nil for none
}

// followConfig reports on the directories of a configuration for as long as it is in force. It returns after
// the first report, unless the directories are unresponsive.
func (h *hookDirs) followConfig(c *core) {
	if len(c.cfg.Hooks.Dirs) == 0 {
		h.last.Store(nil)
		return
	}
	reported := make(chan struct{})
	go func() {
		h.report(c.hooks.Snapshot())
		close(reported)
		for {
			deadline.Sleep(h.closing, hooksCheckInterval)
			s := c.hooks.Snapshot()
			if h.closing.Err() != nil || h.current() != c {
				return
			}
			h.report(s)
		}
	}()
	waitAtStart(func() { <-reported })
}

// report logs each problem once for as long as it lasts, and the number of hooks in force.
func (h *hookDirs) report(s *hooksd.Snapshot) {
	last := h.last.Swap(s)
	if reflect.DeepEqual(s, last) {
		return
	}
	reported := make(map[string]bool)
	if last != nil {
		for _, problem := range last.Problems {
			reported[problem.Error()] = true
		}
	}
	changed := len(reported) != len(s.Problems) || len(s.Problems) == 0
	for _, problem := range s.Problems {
		text := problem.Error()
		if reported[text] {
			continue
		}
		changed = true
		log := h.log.WithField("file", problem.File)
		if problem.IsWarning() {
			plain := *problem
			plain.Severity = "" // the log line has a level
			log.Warn("hooks.d: " + plain.Error())
		} else {
			log.Error("hooks.d: this file or directory is not used: " + text)
		}
	}
	if changed {
		usable, _ := h.count()
		h.log.WithField("hooks", usable).WithField("problems", len(s.Problems)).Info("hooks.d directories read")
	}
}

// count returns the number of usable hooks, and of files and directories with errors.
func (h *hookDirs) count() (usable, inError uint64) {
	s := h.last.Load()
	if s == nil {
		return 0, 0
	}
	for _, hook := range s.Hooks {
		if hook.Err == nil {
			usable++
		}
	}
	files := make(map[string]bool)
	for _, problem := range s.Problems {
		if !problem.IsWarning() {
			files[problem.File] = true
		}
	}
	return usable, uint64(len(files))
}
