// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/jackfield/jackfield/pkg/cdiregistry"
)

// watchInterval is how often a watch looks. A look at what has not changed costs
// a few system calls.
const watchInterval = 250 * time.Millisecond

// fact is one thing that a node offers, or one reason why it does not.
type fact struct {
	Change string `json:"change"` // added, removed or changed
	What   string `json:"what"`   // device, conflict, refused, directory or device-info
	Name   string `json:"name"`   // of the device, or the file
	Detail string `json:"detail,omitempty"`

	content string // tells that it changed where the detail does not
}

func (f fact) key() string { return f.What + " " + f.Name }

func (f fact) text() string {
	sign := map[string]string{"added": "+", "removed": "-", "changed": "~"}[f.Change]
	s := f.Name
	switch {
	case strings.HasPrefix(f.Detail, f.Name): // a finding, which begins with the file
		s = f.Detail
	case f.Detail != "":
		s += "  " + f.Detail
	}
	return plain(fmt.Sprintf("%s %-11s %s", sign, f.What, s))
}

// watcher prints the changes of what a node offers.
type watcher struct {
	registry *cdiregistry.Registry
	dirs     infoDirs
	out      io.Writer
	json     bool

	snapshot *cdiregistry.Snapshot
	cdi      map[string]fact
	stamps   string // of the device-info files
	info     map[string]fact
}

// run prints everything, then each change, until ctx ends.
func (w *watcher) run(ctx context.Context) error {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		if err := w.look(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// look prints what has changed since the last look.
func (w *watcher) look() error {
	if s := w.registry.Snapshot(); s != w.snapshot {
		next := cdiFacts(s)
		if err := w.print(w.cdi, next); err != nil {
			return err
		}
		w.snapshot, w.cdi = s, next
	}
	stamps := w.infoStamps()
	if stamps == w.stamps && w.info != nil {
		return nil
	}
	files, err := w.dirs.plugins()
	if err != nil {
		return err
	}
	next := map[string]fact{}
	for i := range files {
		f := fact{What: "device-info", Name: files[i].File, Detail: files[i].what()}
		if f.Detail == "" {
			f.Detail = files[i].Type
		}
		if !files[i].Valid {
			f.Detail = files[i].Findings[0].String()
		}
		data, _ := json.Marshal(files[i].Info)
		f.content = string(data)
		next[f.key()] = f
	}
	if err := w.print(w.info, next); err != nil {
		return err
	}
	w.stamps, w.info = stamps, next
	return nil
}

// infoStamps is another text when the directory of device-info is another.
func (w *watcher) infoStamps() string {
	dir := w.dirs.dp
	names, err := dir.Root.ReadDir(dir.Dir, maxNames)
	if err != nil {
		return "none"
	}
	var b strings.Builder
	for _, name := range names {
		if st, err := dir.Root.Lstat(path.Join(dir.Dir, name)); err == nil {
			fmt.Fprintf(&b, "%q %d %d %d %d\n", name, st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano())
		}
	}
	return b.String()
}

func cdiFacts(s *cdiregistry.Snapshot) map[string]fact {
	facts := map[string]fact{}
	add := func(f fact) { facts[f.key()] = f }
	for _, name := range s.Devices() {
		d, err := s.Device(name)
		if err != nil {
			continue
		}
		content, _ := json.Marshal([]any{d.SpecEdits, d.Edits})
		add(fact{What: "device", Name: d.Name, Detail: d.File, content: string(content)})
	}
	o := &offer{}
	for _, f := range s.Files() {
		o.fault(f)
	}
	for i := range o.Conflicts {
		add(fact{What: "conflict", Name: o.Conflicts[i].Name, Detail: strings.Join(o.Conflicts[i].Files, ", ")})
	}
	for i := range o.Refused {
		add(fact{What: "refused", Name: o.Refused[i].File, Detail: o.Refused[i].text()})
	}
	for _, d := range s.Dirs() {
		if d.Err != nil {
			add(fact{What: "directory", Name: d.Path, Detail: d.Err.Error()})
		}
	}
	return facts
}

// print prints how next differs from before: what is gone, then what is new or
// changed, each sorted.
func (w *watcher) print(before, next map[string]fact) error {
	var gone, came []fact
	for key, f := range before {
		if _, ok := next[key]; !ok {
			f.Change = "removed"
			gone = append(gone, f)
		}
	}
	for key, f := range next {
		old, ok := before[key]
		switch {
		case !ok:
			f.Change = "added"
		case old.Detail != f.Detail || old.content != f.content:
			f.Change = "changed"
		default:
			continue
		}
		came = append(came, f)
	}
	byKey := func(a, b fact) int { return strings.Compare(a.key(), b.key()) }
	slices.SortFunc(gone, byKey)
	slices.SortFunc(came, byKey)
	for _, f := range append(gone, came...) {
		var err error
		if w.json {
			enc := json.NewEncoder(w.out)
			enc.SetEscapeHTML(false)
			err = enc.Encode(f)
		} else {
			_, err = fmt.Fprintln(w.out, f.text())
		}
		if err != nil {
			return err
		}
	}
	return nil
}
