// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackfield/jackfield/internal/diag"
	"github.com/jackfield/jackfield/pkg/hooksd"
	"github.com/jackfield/jackfield/pkg/hostfs"
	"github.com/jackfield/jackfield/pkg/resolve"
)

// hooksReport is what was reported of hooks.d directories.
type hooksReport struct {
	mu       sync.Mutex
	snapshot *hooksd.Snapshot // the last one reported
	reported map[string]bool  // the problems in it

	usable, inError atomic.Uint64 // hooks, and files and directories
}

// hooksCheckInterval is how often hooks.d directories are checked while no container is
// created.
const hooksCheckInterval = 2 * time.Second

// newHooksDirs returns what an engine reads hooks.d directories with.
func newHooksDirs(host hostfs.Root, dirs []string) resolve.HooksDirs {
	return hooksd.New(host, dirs, hooksd.Options{})
}

// watchHooks reports on the hooks.d directories of an engine until it is out of force. Without
// hooks.d directories it does nothing.
func (p *Plugin) watchHooks(c *core) {
	if c.engine.Hooks() == nil {
		return
	}
	go func() {
		tick := time.NewTicker(hooksCheckInterval)
		defer tick.Stop()
		for range tick.C {
			if p.closing.Err() != nil || p.config.core.Load().engine != c.engine {
				return
			}
			p.reportHooks()
		}
	}()
}

// reportHooks logs what is wrong in hooks.d directories, each problem once for as long as it
// lasts, and how many hooks are in force.
func (p *Plugin) reportHooks() {
	current := p.config.core.Load()
	if current == nil {
		return // the runtime hands over the configuration
	}
	registry, _ := current.engine.Hooks().(*hooksd.Registry)
	if registry == nil {
		p.hooks.usable.Store(0)
		p.hooks.inError.Store(0)
		return
	}
	if !p.hooks.mu.TryLock() {
		return // another check is under way, and may hang
	}
	defer p.hooks.mu.Unlock()
	s := registry.Snapshot()
	if s == p.hooks.snapshot {
		return
	}
	p.hooks.snapshot = s
	reported := make(map[string]bool, len(s.Problems))
	changed := len(p.hooks.reported) != len(s.Problems)
	for _, problem := range s.Problems {
		text := problem.Error()
		reported[text] = true
		if p.hooks.reported[text] {
			continue
		}
		changed = true
		log := p.log.WithField("file", problem.File)
		if problem.IsWarning() {
			plain := *problem
			plain.Severity = "" // the log line has a level
			log.Warn("hooks.d: " + plain.Error())
		} else {
			log.Error("hooks.d: this file or directory is not used: " + text)
		}
	}
	p.hooks.reported = reported
	p.hooks.inError.Store(filesInError(s.Problems))
	usable := 0
	for _, h := range s.Hooks {
		if h.Err == nil {
			usable++
		}
	}
	p.hooks.usable.Store(uint64(usable))
	if changed || len(s.Problems) == 0 {
		p.log.WithField("hooks", usable).WithField("problems", len(s.Problems)).Info("hooks.d directories read")
	}
}

// filesInError counts the files and directories that cannot be used.
func filesInError(problems diag.List) uint64 {
	files := make(map[string]bool)
	for _, p := range problems {
		if !p.IsWarning() {
			files[p.File] = true
		}
	}
	return uint64(len(files))
}
