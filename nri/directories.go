// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/telemetry"
)

const (
	// lookEvery is how often each directory is looked at: a system call or two where
	// it answers.
	lookEvery = 5 * time.Second
	// answerIn is how long a directory may take before it counts as one that hangs.
	answerIn = time.Second
)

// directories knows which of the directories that the configuration names do not
// answer: a network file system whose server is gone, a FUSE whose process hangs.
// Nobody waits for one that is known to. A look that hangs is the only one at its
// directory, and its return is how an answer is noticed, at once.
type directories struct {
	p    *Plugin
	quit chan struct{}

	mu   sync.Mutex
	now  []*watchedDir // in the configuration's order
	byIt map[string]*watchedDir
}

// watchedDir is one directory. The lock of directories guards it.
type watchedDir struct {
	config.Directory
	looking bool
	since   time.Time // of the look that hangs; zero while the directory answers
}

func newDirectories(p *Plugin) *directories {
	d := &directories{p: p, quit: make(chan struct{}), byIt: make(map[string]*watchedDir)}
	go d.run()
	return d
}

// use looks after the directories of a configuration from now on.
func (d *directories) use(dirs []config.Directory) {
	d.mu.Lock()
	d.now = nil
	for _, dir := range dirs {
		w := d.byIt[dir.Path]
		if w == nil {
			w = &watchedDir{}
			d.byIt[dir.Path] = w
		}
		w.Directory = dir
		d.now = append(d.now, w)
	}
	for path, w := range d.byIt {
		// What hangs is kept for as long as it does, or each reload would leave one
		// more look behind.
		if !w.looking && !slices.Contains(d.now, w) {
			delete(d.byIt, path)
		}
	}
	d.mu.Unlock()
	d.look()
}

func (d *directories) run() {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-d.quit:
			return
		case <-tick.C:
			d.look()
		}
	}
}

// look begins a look at each directory that none is under way at.
func (d *directories) look() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range d.now {
		if w.looking {
			continue
		}
		w.looking = true
		began, path := time.Now(), w.Path
		late := time.AfterFunc(answerIn, func() { d.late(w, began) })
		go func() {
			_, _ = d.p.opts.Host.Stat(path) // whatever it says, it is an answer
			late.Stop()
			d.answered(w)
		}()
	}
}

func (d *directories) late(w *watchedDir, began time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !w.looking || !w.since.IsZero() {
		return
	}
	w.since = began
	d.p.log.WithField("directory", w.Path).WithField("use", w.Use).
		Error("a directory does not answer: containers that need it are refused until it does; see what it is mounted from")
}

func (d *directories) answered(w *watchedDir) {
	d.mu.Lock()
	hung := !w.since.IsZero()
	if hung {
		d.p.log.WithField("directory", w.Path).WithField("use", w.Use).WithField("after", time.Since(w.since).Round(time.Millisecond).String()).
			Info("the directory answers again")
	}
	w.looking, w.since = false, time.Time{}
	d.mu.Unlock()
	if hung {
		d.p.hotplug.changed("") // what came meanwhile
	}
}

// check is why dir is not to be waited for, nil while it answers.
func (d *directories) check(dir string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if w := d.byIt[dir]; w != nil && !w.since.IsZero() {
		return fmt.Errorf("%s: %w", w.hanging(), errdefs.ErrUnavailable)
	}
	return nil
}

func (w *watchedDir) hanging() string {
	return fmt.Sprintf("the directory %s (%s) does not answer since %s; see what it is mounted from", w.Path, w.Use, w.since.UTC().Format(time.TimeOnly+"Z"))
}

// hanging are the directories that do not answer, one phrase each; "" for none.
func (d *directories) hanging() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []string
	for _, w := range d.now {
		if !w.since.IsZero() {
			out = append(out, w.hanging())
		}
	}
	return strings.Join(out, "; ")
}

// sample is what metrics tell of them.
func (d *directories) sample() []telemetry.Directory {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]telemetry.Directory, len(d.now))
	for i, w := range d.now {
		out[i] = telemetry.Directory{Path: w.Path, Use: w.Use, Up: w.since.IsZero()}
	}
	return out
}

// say writes a line for each directory that hangs, or one that none does.
func (d *directories) say(b *bytes.Buffer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	ok := true
	for _, w := range d.now {
		if !w.since.IsZero() {
			ok = false
			fmt.Fprintf(b, "directories: %s\n", w.hanging())
		}
	}
	if ok {
		fmt.Fprintln(b, "directories: ok")
	}
}

func (d *directories) close() { close(d.quit) }
