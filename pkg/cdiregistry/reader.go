// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import "strings"

// Reader looks up devices one after the other and uses the same memory for each:
// for a caller who makes something else of them at once. The zero value is ready;
// it serves one goroutine at a time.
type Reader struct {
	device     Device
	spec, edit editsMemory
}

// Device is [Snapshot.Device], without annotations. What it gives is overwritten by
// the next call, but for the strings in it and the lists of strings that are not
// env: these may be kept, and changed.
func (r *Reader) Device(s *Snapshot, qualifiedName string) (*Device, error) {
	kind, name, _ := strings.Cut(qualifiedName, "=")
	sl, err := s.slot(qualifiedName, kind, name)
	if err != nil {
		return nil, err
	}
	r.device = Device{Name: qualifiedName, File: sl.e.path(), Priority: sl.e.dir.prio}
	sl.e.blob.fillInto(int(sl.i), &r.device, &r.spec, &r.edit)
	return &r.device, nil
}
