// SPDX-License-Identifier: Apache-2.0

package engine

import "github.com/jackfield/jackfield/internal/edit"

// delta is the contribution of one candidate to the plan. It is merged as a whole, or dropped.
type delta struct {
	merged *draft // the plan before this candidate, which the delta only reads
	item   Item
	edits  *edit.Builder  // checked for conflicts with merged as they are added
	host   edit.Container // directories and sockets
	view   *viewEntry     // nil for none

	specFiles  map[string]bool       // CDI files whose edits for all devices are in edits
	cdiDevices map[string]bool       // CDI devices that are in edits
	variables  map[string]envSetting // variables of CDI devices
}

func newDelta(p *draft, item Item) *delta {
	return &delta{merged: p, item: item, edits: p.edits.Delta()}
}

// checkDeliverable returns why the adapter cannot deliver the delta, or nil.
func (d *delta) checkDeliverable(req *Request) error {
	if req.CanDeliver == nil || d.edits.Changes() == 0 {
		return nil
	}
	return req.CanDeliver(d.edits.Preview(), d.item.Request)
}

// addNotes adds remarks for the user.
func (d *delta) addNotes(notes ...string) { d.item.Notes = append(d.item.Notes, notes...) }

func (d *delta) hasSpecFile(file string) bool { return d.specFiles[file] || d.merged.specFiles[file] }

func (d *delta) hasCDIDevice(name string) bool {
	return d.cdiDevices[name] || d.merged.cdiDevices[name]
}

// variable returns the value that an earlier CDI device set.
func (d *delta) variable(name string) (setting envSetting, ok bool) {
	if setting, ok = d.variables[name]; !ok {
		setting, ok = d.merged.variables[name]
	}
	return setting, ok
}

// put sets an entry of a map that may be nil.
func put[V any](m *map[string]V, key string, value V) {
	if *m == nil {
		*m = make(map[string]V)
	}
	(*m)[key] = value
}
