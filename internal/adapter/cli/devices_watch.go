// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackfield/jackfield/pkg/cdi"
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

// watcher prints the changes of a node's inventory.
type watcher struct {
	registry *cdi.Cache
	node     localNode
	out      io.Writer
	json     bool
	printed  map[string]inventoryItem
}

// printChanges prints the changes since the last call: removed items, then new and changed ones, each sorted.
func (w *watcher) printChanges() error {
	offered, err := readInventory(w.registry, w.node)
	if err != nil {
		return err
	}
	before, next := w.printed, offered.items()
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

// items returns everything in the inventory, by kind and name.
func (o *inventory) items() map[string]inventoryItem {
	items := map[string]inventoryItem{}
	add := func(what, name, detail, content string) {
		items[what+" "+name] = inventoryItem{What: what, Name: name, Detail: detail, content: content}
	}
	for _, d := range o.Devices {
		add("device", d.Name, d.File, d.content)
	}
	for _, c := range o.Conflicts {
		add("conflict", c.Name, strings.Join(c.Files, ", "), "")
	}
	for _, r := range o.Refused {
		add("refused", r.File, r.Findings.Summary(), "")
	}
	for _, d := range o.Dirs {
		if d.Error != "" {
			add("directory", d.Path, d.Error, "")
		}
	}
	for i := range o.DeviceInfo {
		f := &o.DeviceInfo[i]
		content, _ := json.Marshal(f.Info)
		detail := cmp.Or(f.ownerText(), f.Type)
		if !f.Valid {
			detail = plain(f.Findings[0].Error())
		}
		add("device-info", f.File, detail, string(content))
	}
	return items
}
