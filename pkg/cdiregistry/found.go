// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"
)

// Found is a device in its snapshot, for a caller who makes something else of its
// edits at once and needs no [Device].
type Found struct {
	File  string // as in Device
	Index int

	blob blob
}

// Find is [Snapshot.Device] without decoding it.
func (s *Snapshot) Find(qualifiedName string) (Found, error) {
	kind, name, _ := strings.Cut(qualifiedName, "=")
	d, err := s.declaration(qualifiedName, kind, name)
	if err != nil {
		return Found{}, err
	}
	return Found{File: d.e.path(), Index: d.i, blob: d.e.blob()}, nil
}

// SpecEdits are the edits that go with any device of the file, before Edits.
func (f *Found) SpecEdits(lists *Lists) Edits {
	r := f.blob.reader()
	r.str() // the kind
	r.skipNotes()
	return editsAt(r, lists)
}

// Edits are those of the device.
func (f *Found) Edits(lists *Lists) Edits {
	r := f.blob.at(f.Index)
	r.str() // the name
	r.skipNotes()
	return editsAt(r, lists)
}

// Edits walks over containerEdits, item by item of one list after the other. After
// each Next the method that is called like the list gives the item, and is to be
// called once. What it gives is the caller's own.
type Edits struct {
	r     blobReader
	list  List
	index int
	len   int
}

// List is a list of containerEdits.
type List uint8

// The lists in their order. IntelRdt, which is none, has one item.
const (
	Env            List = tagEnv
	DeviceNodes    List = tagDeviceNodes
	NetDevices     List = tagNetDevices
	Hooks          List = tagHooks
	Mounts         List = tagMounts
	IntelRdt       List = tagIntelRdt
	AdditionalGIDs List = tagGIDs
)

// editsAt walks over the edits that begin where the reader is.
func editsAt(r blobReader, lists *Lists) Edits {
	n := r.strings()
	if tag := r; tag.byte() == tagEnv {
		n -= int(tag.uint()) // in no list of an item
	}
	if n > 0 {
		r.pool = lists.room(n)
	}
	return Edits{r: r}
}

// Next goes to the next item; false when there is none.
func (e *Edits) Next() bool {
	if e.index++; e.index < e.len {
		return true
	}
	e.list, e.index, e.len = List(e.r.byte()), 0, 1
	switch e.list {
	case tagEnd:
		e.r.i--
		return false
	case IntelRdt:
	default:
		e.len = int(e.r.uint())
	}
	return true
}

// List is the list that the item is of, Index its place there, from 0, and Len how many
// items the list has.
func (e *Edits) List() List { return e.list }
func (e *Edits) Index() int { return e.index }
func (e *Edits) Len() int   { return e.len }

func (e *Edits) Env() string                     { return e.r.str() }
func (e *Edits) DeviceNode() specs.DeviceNode    { return e.r.deviceNode() }
func (e *Edits) NetDevice() specs.LinuxNetDevice { return e.r.netDevice() }
func (e *Edits) Hook() specs.Hook                { return e.r.hook() }
func (e *Edits) Mount() specs.Mount              { return e.r.mount() }
func (e *Edits) IntelRdt() specs.IntelRdt        { return e.r.intelRdt() }
func (e *Edits) AdditionalGID() uint32           { return uint32(e.r.uint()) }

// Lists is room for the lists of strings in items, which is used again and again. The
// zero value is ready.
type Lists struct {
	memory []string
	wanted int
}

// fewStrings is up to how many strings are left where they were in room that nobody
// uses: they hold no more than a few spec files.
const fewStrings = 64

// Reset takes the room back, and more where it was too little, when nobody uses any of
// the lists.
func (l *Lists) Reset() {
	if cap(l.memory) < l.wanted {
		l.memory = make([]string, 0, l.wanted)
	}
	if len(l.memory) > fewStrings {
		clear(l.memory)
	}
	l.memory, l.wanted = l.memory[:0], 0
}

// room is some for n strings, in memory of its own when there is too little.
func (l *Lists) room(n int) []string {
	l.wanted += n
	from := len(l.memory)
	if cap(l.memory)-from < n {
		return make([]string, n)
	}
	l.memory = l.memory[:from+n]
	return l.memory[from : from+n : from+n]
}
