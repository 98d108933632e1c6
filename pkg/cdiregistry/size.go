// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import "golang.org/x/sys/unix"

// Size is how much a snapshot holds.
type Size struct {
	Files        int // specification files, refused ones among them
	FilesInError int // of these: refused, or declaring a device that another file of their directory declares
	Devices      int // devices that can be asked for
	DirsInError  int // directories that are there and cannot be read
}

// Size counts, without making the lists that Files and Devices make.
func (s *Snapshot) Size() Size {
	var n Size
	clashing := map[*entry]bool{}
	for c := range s.conflicts.all() {
		all := s.conflicting(c)
		for _, d := range all {
			for _, other := range all {
				if other.e != d.e && other.e.dir == d.e.dir {
					clashing[d.e] = true
				}
			}
		}
	}
	for i := range s.dirs {
		v := &s.dirs[i]
		if v.err != nil && v.id.errno != unix.ENOENT {
			n.DirsInError++
		}
		for e := range s.entries(&v.files) {
			n.Files++
			if e.err != nil || clashing[e] {
				n.FilesInError++
			}
		}
	}
	for k := range s.kinds.all() {
		for sl := range k.devices.all() {
			if _, same := k.best(&s.table, sl); same == 1 {
				n.Devices++
			}
		}
	}
	return n
}
