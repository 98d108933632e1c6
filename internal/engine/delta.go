// SPDX-License-Identifier: Apache-2.0

package engine

import "github.com/jackfield/jackfield/internal/edit"

// delta is the contribution of one candidate to the plan. It is merged as a whole, or dropped.
type delta struct {
	merged *draft // the plan before this candidate, which the delta only reads
	item   *Item
	edits  *edit.Builder  // an edit that conflicts with merged is an error when it is added
	host   edit.Container // directories and sockets
	view   *viewEntry     // nil for none

	present []edit.Device // nodes of the candidate that the container has already
	held    []HeldDevice  // all nodes of the candidate

	cdiDevices []string              // CDI devices that are in edits
	specFiles  map[string]bool       // CDI files whose edits for all devices are in edits
	variables  map[string]envSetting // variables of CDI devices
}

// checkDeliverable returns why the adapter cannot deliver the delta, or nil.
func (d *delta) checkDeliverable(req *Request) error {
	if req.CanDeliver == nil || d.edits.Changes() == 0 {
		return nil
	}
	return req.CanDeliver(d.edits.Preview(), d.item.Request)
}

// checkVisible returns an error if a mount hides a device node that the container is to get.
func (d *delta) checkVisible() error {
	if d.edits.Changes() == 0 {
		return nil
	}
	if err := d.edits.HiddenDevice(); err != nil {
		return &RequestError{Request: d.item.Request, Err: err}
	}
	return nil
}

// addNotes adds remarks for the user.
func (d *delta) addNotes(notes ...string) { d.item.Notes = append(d.item.Notes, notes...) }

// putEntry sets an entry of a map that may be nil.
func putEntry[V any](m *map[string]V, key string, value V) {
	if *m == nil {
		*m = make(map[string]V)
	}
	(*m)[key] = value
}
