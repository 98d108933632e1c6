// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackfield/jackfield/internal/diag"
	"github.com/jackfield/jackfield/pkg/cdiregistry"
)

// watchInterval is the time between two reads of the inventory.
const watchInterval = 250 * time.Millisecond

// inventoryItem is one thing that a node offers, or one reason why it does not.
type inventoryItem struct {
	Change string `json:"change"` // added, removed or changed
	What   string `json:"what"`   // device, conflict, refused, directory or device-info
	Name   string `json:"name"`   // of the device, or the file
	Detail string `json:"detail,omitempty"`

	content string // differs after a change that the detail does not show
}

func (i inventoryItem) itemKey() string { return i.What + " " + i.Name }

func (i inventoryItem) formatText() string {
	sign := map[string]string{"added": "+", "removed": "-", "changed": "~"}[i.Change]
	s := i.Name
	switch {
	case strings.HasPrefix(i.Detail, i.Name): // a diagnostic, which begins with the file
		s = i.Detail
	case i.Detail != "":
		s += "  " + i.Detail
	}
	return plain(fmt.Sprintf("%s %-11s %s", sign, i.What, s))
}

// watcher prints the changes of what a node offers.
type watcher struct {
	registry *cdiregistry.Registry
	dirs     infoDirs
	out      io.Writer
	json     bool

	snapshot *cdiregistry.Snapshot // that cdi is of
	cdi      map[string]inventoryItem
	printed  map[string]inventoryItem
}

// printUntilDone prints everything, then each change, until ctx ends.
func (w *watcher) printUntilDone(ctx context.Context) error {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		if err := w.printChanges(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// printChanges prints what has changed since the last call: removed items, then new and changed ones, each sorted.
func (w *watcher) printChanges() error {
	if s := w.registry.Snapshot(); s != w.snapshot {
		w.snapshot, w.cdi = s, cdiItems(s)
	}
	files, err := w.dirs.plugins()
	if err != nil {
		return err
	}
	before, next := w.printed, maps.Clone(w.cdi)
	for i := range files {
		item := inventoryItem{What: "device-info", Name: files[i].File, Detail: cmp.Or(files[i].ownerText(), files[i].Type)}
		if !files[i].Valid {
			item.Detail = plain(files[i].Findings[0].Error())
		}
		data, _ := json.Marshal(files[i].Info)
		item.content = string(data)
		next[item.itemKey()] = item
	}
	w.printed = next
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if _, ok := next[key]; !ok {
			err = cmp.Or(err, w.print("removed", before[key]))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(next)) {
		old, ok := before[key]
		switch {
		case !ok:
			err = cmp.Or(err, w.print("added", next[key]))
		case old != next[key]:
			err = cmp.Or(err, w.print("changed", next[key]))
		}
	}
	return err
}

func (w *watcher) print(change string, item inventoryItem) error {
	item.Change = change
	if !w.json {
		_, err := fmt.Fprintln(w.out, item.formatText())
		return err
	}
	enc := json.NewEncoder(w.out)
	enc.SetEscapeHTML(false)
	return enc.Encode(item)
}

func cdiItems(s *cdiregistry.Snapshot) map[string]inventoryItem {
	items := map[string]inventoryItem{}
	add := func(f inventoryItem) { items[f.itemKey()] = f }
	for _, name := range s.Devices() {
		d, err := s.Device(name)
		if err != nil {
			continue
		}
		content, _ := json.Marshal([]any{d.SpecEdits, d.Edits})
		add(inventoryItem{What: "device", Name: d.Name, Detail: d.File, content: string(content)})
	}
	o := &inventory{}
	for _, f := range s.Files() {
		o.addFault(f)
	}
	for i := range o.Conflicts {
		add(inventoryItem{What: "conflict", Name: o.Conflicts[i].Name, Detail: strings.Join(o.Conflicts[i].Files, ", ")})
	}
	for i := range o.Refused {
		add(inventoryItem{What: "refused", Name: o.Refused[i].File, Detail: firstText(o.Refused[i].Findings)})
	}
	for _, d := range s.Dirs() {
		if d.Err != nil {
			add(inventoryItem{What: "directory", Name: d.Path, Detail: diag.ErrorText(d.Err)})
		}
	}
	return items
}
