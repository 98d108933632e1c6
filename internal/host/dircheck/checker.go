// SPDX-License-Identifier: Apache-2.0

// Package dircheck detects unresponsive directories: directories on a network file system whose
// server is gone, or on a FUSE file system whose process hangs.
//
// Invariant: no caller waits for a directory. Each directory has at most one check in progress. A
// hanging check that ends shows that the directory responds again.
package dircheck

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

const (
	// checkInterval is the time between two checks of a directory.
	checkInterval = 5 * time.Second
	// unresponsiveAfter is the duration of a check after which the directory counts as
	// unresponsive.
	unresponsiveAfter = time.Second
)

// Directory is a directory of the host.
type Directory struct {
	Path  string
	Use   string    // its purpose, for messages
	Since time.Time // when it became unresponsive; zero while it responds
}

// fault returns the reason why callers must not wait for the directory.
func (d Directory) fault() string {
	return fmt.Sprintf("directory %s (%s) has been unresponsive since %s; check the file system mounted there", d.Path,
		d.Use, d.Since.UTC().Format(time.TimeOnly+"Z"))
}

// Checker checks directories until Close.
type Checker struct {
	host   hostfs.Root
	report func(Directory, time.Duration)
	quit   chan struct{}

	reporting sync.Mutex // held before mu, during a change and its report, so that reports are in the order of changes

	mu      sync.Mutex
	current []*checked          // in the order of Replace
	byPath  map[string]*checked // includes removed ones, whose check may be in progress
}

// checked is one directory. Checker.mu guards it.
type checked struct {
	Directory
	checking bool
}

// New returns a checker without directories. It calls report for a directory that became
// unresponsive, and again, with the duration, when the directory responds.
func New(host hostfs.Root, report func(d Directory, was time.Duration)) *Checker {
	c := &Checker{host: host, report: report, quit: make(chan struct{}), byPath: make(map[string]*checked)}
	go c.run()
	return c
}

// Close ends the checks.
func (c *Checker) Close() { close(c.quit) }

// Replace replaces the checked directories.
func (c *Checker) Replace(dirs []Directory) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current = nil
	for _, dir := range dirs {
		d := cmp.Or(c.byPath[dir.Path], &checked{})
		c.byPath[dir.Path] = d
		d.Path, d.Use = dir.Path, dir.Use
		c.current = append(c.current, d)
	}
	c.checkAll()
}

func (c *Checker) run() {
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for {
		select {
		case <-c.quit:
			return
		case <-tick.C:
			c.mu.Lock()
			c.checkAll()
			c.mu.Unlock()
		}
	}
}

// checkAll begins a check of each directory that has none in progress. The caller holds the lock.
func (c *Checker) checkAll() {
	for _, d := range c.current {
		if d.checking {
			continue
		}
		d.checking = true
		began, path := time.Now(), d.Path
		late := time.AfterFunc(unresponsiveAfter, func() { c.markUnresponsive(d, began) })
		go func() {
			_, _ = c.host.Stat(path) // an error is a response as well
			late.Stop()
			c.markResponsive(d)
		}()
	}
}

// markUnresponsive reports a directory that did not respond in time.
func (c *Checker) markUnresponsive(d *checked, began time.Time) {
	c.reporting.Lock()
	defer c.reporting.Unlock()
	c.mu.Lock()
	fresh := d.checking && d.Since.IsZero()
	if fresh {
		d.Since = began
	}
	now := d.Directory
	c.mu.Unlock()
	if fresh {
		c.report(now, 0)
	}
}

// markResponsive ends a check. It reports the directory if it was reported as unresponsive.
func (c *Checker) markResponsive(d *checked) {
	c.reporting.Lock()
	defer c.reporting.Unlock()
	c.mu.Lock()
	since := d.Since
	d.checking, d.Since = false, time.Time{}
	now := d.Directory
	c.mu.Unlock()
	if !since.IsZero() {
		c.report(now, time.Since(since))
	}
}

// Check returns the reason why callers must not wait for the directory, or nil while it responds.
// The error is an errdefs.ErrUnavailable.
func (c *Checker) Check(path string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d := c.byPath[path]; d != nil && !d.Since.IsZero() {
		return errdefs.ErrUnavailable.WithMessage(d.fault())
	}
	return nil
}

// Directories returns the directories in the order of Replace.
func (c *Checker) Directories() []Directory {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]Directory, len(c.current))
	for i, d := range c.current {
		out[i] = d.Directory
	}
	return out
}

// Faults returns the fault of each unresponsive directory.
func (c *Checker) Faults() []string {
	var out []string
	for _, d := range c.Directories() {
		if !d.Since.IsZero() {
			out = append(out, d.fault())
		}
	}
	return out
}
