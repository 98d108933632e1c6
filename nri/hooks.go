// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackfield/jackfield/pkg/hooksd"
	"github.com/jackfield/jackfield/pkg/hostfs"
	"github.com/jackfield/jackfield/pkg/resolve"
)

// hooksReport is what was said of hooks.d directories.
type hooksReport struct {
	mu   sync.Mutex
	seen *hooksd.Snapshot
	said map[string]bool

	usable, inError atomic.Uint64 // hooks, and files and directories
}

// hooksLook is how often the directories are looked at when no container is
// created: a system call or two where nothing has changed.
const hooksLook = 2 * time.Second

// hooksDirs makes what an engine of the plugin's reads hooks.d directories with.
func hooksDirs(host hostfs.Root, dirs []string) resolve.HooksDirs {
	return hooksd.New(host, dirs, hooksd.Options{})
}

// watchHooks reports on hooks.d directories until ctx ends.
func (p *Plugin) watchHooks(ctx context.Context) {
	tick := time.NewTicker(hooksLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			p.reportHooks()
		}
	}
}

// reportHooks logs what is wrong with files of hooks.d directories, each finding
// once for as long as it lasts, and what is in force.
func (p *Plugin) reportHooks() {
	core := p.core.Load()
	if core == nil {
		return // the runtime hands over the configuration
	}
	registry, _ := core.engine.Hooks().(*hooksd.Registry)
	if registry == nil {
		p.hooks.usable.Store(0)
		p.hooks.inError.Store(0)
		return
	}
	if !p.hooks.mu.TryLock() {
		return // somebody looks already, at a directory that may hang
	}
	defer p.hooks.mu.Unlock()
	s := registry.Snapshot()
	if s == p.hooks.seen {
		return
	}
	p.hooks.seen = s
	said := make(map[string]bool, len(s.Problems))
	news := len(p.hooks.said) != len(s.Problems)
	for _, problem := range s.Problems {
		text := problem.Error()
		said[text] = true
		if p.hooks.said[text] {
			continue
		}
		news = true
		log := p.log.WithField("file", problem.File)
		if problem.Warning {
			log.Warn("hooks.d: " + text)
		} else {
			log.Error("hooks.d: this file or directory is not used: " + text)
		}
	}
	p.hooks.said = said
	p.hooks.inError.Store(filesInError(s.Problems))
	usable := 0
	for _, h := range s.Hooks {
		if h.Err == nil {
			usable++
		}
	}
	p.hooks.usable.Store(uint64(usable))
	if news || len(s.Problems) == 0 {
		p.log.WithField("hooks", usable).WithField("problems", len(s.Problems)).Info("hooks.d directories read")
	}
}

// filesInError counts the files and directories that are not used.
func filesInError(problems []*hooksd.Problem) uint64 {
	files := make(map[string]bool)
	for _, p := range problems {
		if !p.Warning {
			files[p.File] = true
		}
	}
	return uint64(len(files))
}

// warnOfTwoReaders says that a runtime which reads hooks.d directories itself
// injects their hooks, too.
func (p *Plugin) warnOfTwoReaders(runtime string) {
	if runtime == "cri-o" && p.core.Load().engine.Hooks() != nil {
		p.log.Warn("hooks.dirs is configured, and CRI-O reads hooks.d directories itself (hooks_dir in crio.conf): name no directory in both")
	}
}
