// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"os"
	"reflect"

	specs "tags.cncf.io/container-device-interface/specs-go"
)

// A validated spec file is kept as one string, its "blob": about a third of
// the text's size and a single object for the garbage collector. Strings that
// occur again refer to their first place, those of other files too (words) to their
// number. A lookup decodes the spec-level edits
// and one device, and so hands out values that nobody shares; the strings in
// them are slices of the blob, which is safe because neither can change.
//
//	version  one byte, an index of knownVersions
//	kind     string
//	notes    annotations of the file
//	edits    spec-level edits
//	device*  name, annotations, edits
//	offset*  four bytes a device: where it begins
//
// A string begins with a number: twice its length; or four times the place of its
// first occurrence, plus one; or four times the number of a word, plus three.
//
// Edits begin with the number of strings in their lists (two bytes), which are
// decoded into one array, and end with tagEnd.

// Tags of the edits; tagEnd closes them.
const (
	tagEnd = iota
	tagEnv
	tagDeviceNodes
	tagNetDevices
	tagHooks
	tagMounts
	tagIntelRdt
	tagGIDs
)

// Presence bits of a device node's optional fields.
const (
	nodeHostPath = 1 << iota
	nodeType
	nodeMajor
	nodeMinor
	nodeFileMode
	nodePermissions
	nodeUID
	nodeGID
)

// Presence bits of intelRdt.
const (
	rdtMonitoring = 1 << iota
	rdtSchemata
)

// blobReader decodes what blobWriter wrote.
type blobReader struct {
	s     string
	i     int
	words *words
	pool  []string // for the lists of the edits being read
}

func (r *blobReader) byte() byte {
	c := r.s[r.i]
	r.i++
	return c
}

func (r *blobReader) uint() uint64 {
	if c := r.s[r.i]; c < 0x80 {
		r.i++
		return uint64(c)
	}
	return r.longUint()
}

func (r *blobReader) longUint() uint64 {
	var v uint64
	for shift := 0; ; shift += 7 {
		c := r.byte()
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return v
		}
	}
}

func (r *blobReader) str() string {
	v := r.uint()
	switch v & 3 {
	case 1:
		back := blobReader{s: r.s, i: int(v >> 2)}
		return back.here()
	case 3:
		return r.words.at(v >> 2)
	}
	n := int(v >> 1)
	s := r.s[r.i : r.i+n]
	r.i += n
	return s
}

// here is a string that is no reference.
func (r *blobReader) here() string {
	n := int(r.uint() >> 1)
	return r.s[r.i : r.i+n]
}

func (r *blobReader) strs() []string {
	n := int(r.uint())
	if n == 0 {
		return nil
	}
	var list []string
	if n <= len(r.pool) {
		// Without room to grow, so that lists that are appended to do not meet.
		list, r.pool = r.pool[:n:n], r.pool[n:]
	} else {
		list = make([]string, n)
	}
	for i := range list {
		list[i] = r.str()
	}
	return list
}

func (r *blobReader) notes() map[string]string {
	n := int(r.uint())
	if n == 0 {
		return nil
	}
	m := make(map[string]string, n)
	for range n {
		k := r.str()
		m[k] = r.str()
	}
	return m
}

// skipNotes passes over annotations.
func (r *blobReader) skipNotes() {
	for n := int(r.uint()); n > 0; n-- {
		r.str()
		r.str()
	}
}

// strings is the number of strings in the lists of the edits that begin here.
func (r *blobReader) strings() int { return int(r.byte()) | int(r.byte())<<8 }

// edits decodes edits.
func (r *blobReader) edits() *specs.ContainerEdits {
	e := &specs.ContainerEdits{}
	r.pool = nil
	if n := r.strings(); n > 0 {
		r.pool = make([]string, n)
	}
	for {
		switch r.byte() {
		case tagEnd:
			return e
		case tagEnv:
			e.Env = r.strs()
		case tagDeviceNodes:
			e.DeviceNodes = pointers(r, (*blobReader).deviceNode)
		case tagNetDevices:
			e.NetDevices = pointers(r, (*blobReader).netDevice)
		case tagHooks:
			e.Hooks = pointers(r, (*blobReader).hook)
		case tagMounts:
			e.Mounts = pointers(r, (*blobReader).mount)
		case tagIntelRdt:
			rdt := r.intelRdt()
			e.IntelRdt = &rdt
		case tagGIDs:
			e.AdditionalGIDs = make([]uint32, r.uint())
			for i := range e.AdditionalGIDs {
				e.AdditionalGIDs[i] = uint32(r.uint())
			}
		}
	}
}

// pointers decodes a list.
func pointers[T any](r *blobReader, item func(*blobReader) T) []*T {
	items := make([]T, r.uint())
	list := make([]*T, len(items))
	for i := range items {
		items[i] = item(r)
		list[i] = &items[i]
	}
	return list
}

func (r *blobReader) deviceNode() specs.DeviceNode {
	flags := r.byte()
	n := specs.DeviceNode{Path: r.str()}
	if flags&nodeHostPath != 0 {
		n.HostPath = r.str()
	}
	if flags&nodeType != 0 {
		n.Type = r.str()
	}
	if flags&nodeMajor != 0 {
		n.Major = int64(r.uint())
	}
	if flags&nodeMinor != 0 {
		n.Minor = int64(r.uint())
	}
	if flags&nodeFileMode != 0 {
		m := os.FileMode(r.uint())
		n.FileMode = &m
	}
	if flags&nodePermissions != 0 {
		n.Permissions = r.str()
	}
	if flags&nodeUID != 0 {
		id := uint32(r.uint())
		n.UID = &id
	}
	if flags&nodeGID != 0 {
		id := uint32(r.uint())
		n.GID = &id
	}
	return n
}

func (r *blobReader) netDevice() specs.LinuxNetDevice {
	return specs.LinuxNetDevice{HostInterfaceName: r.str(), Name: r.str()}
}

func (r *blobReader) mount() specs.Mount {
	return specs.Mount{HostPath: r.str(), ContainerPath: r.str(), Type: r.str(), Options: r.strs()}
}

func (r *blobReader) hook() specs.Hook {
	h := specs.Hook{HookName: r.str(), Path: r.str(), Args: r.strs(), Env: r.strs()}
	if t := r.uint(); t != 0 {
		seconds := int(t)
		h.Timeout = &seconds
	}
	return h
}

func (r *blobReader) intelRdt() specs.IntelRdt {
	flags := r.byte()
	rdt := specs.IntelRdt{ClosID: r.str(), L3CacheSchema: r.str(), MemBwSchema: r.str()}
	rdt.EnableMonitoring = flags&rdtMonitoring != 0
	if flags&rdtSchemata != 0 {
		rdt.Schemata = append([]string{}, r.strs()...)
	}
	return rdt
}

// blob is a finished blob with the number of its devices and the words that it names.
type blob struct {
	s     string
	n     int
	words *words
}

// same tells that two blobs are of the same content.
func (b blob) same(o blob) bool {
	// The longer a registry lives, the more words there are.
	return b.s == o.s || b.s != "" && o.s != "" && b.n == o.n && reflect.DeepEqual(b.spec(), o.spec())
}

// reader is one placed behind the version.
func (b blob) reader() blobReader { return blobReader{s: b.s, i: 1, words: b.words} }

func (b blob) version() string { return knownVersions[b.s[0]] }

func (b blob) kind() string {
	r := b.reader()
	return r.str()
}

// at is a reader placed on device i.
func (b blob) at(i int) blobReader {
	t := b.s[len(b.s)-4*(b.n-i):]
	off := uint32(t[0]) | uint32(t[1])<<8 | uint32(t[2])<<16 | uint32(t[3])<<24
	return blobReader{s: b.s, i: int(off), words: b.words}
}

func (b blob) deviceName(i int) string {
	r := b.at(i)
	return r.str()
}

// fill decodes device i and what belongs to the file, but for the name.
func (b blob) fill(i int, d *Device) {
	r := b.reader()
	d.CDIVersion = b.version()
	d.Kind = r.str()
	d.SpecAnnotations = r.notes()
	d.SpecEdits = r.edits()
	r = b.at(i)
	r.str()
	d.Index = i
	d.Annotations = r.notes()
	d.Edits = r.edits()
}

// spec decodes the whole file.
func (b blob) spec() *specs.Spec {
	r := b.reader()
	s := &specs.Spec{Version: b.version(), Kind: r.str(), Annotations: r.notes()}
	s.ContainerEdits = *r.edits()
	s.Devices = make([]specs.Device, b.n)
	for i := range s.Devices {
		s.Devices[i] = specs.Device{Name: r.str(), Annotations: r.notes(), ContainerEdits: *r.edits()}
	}
	return s
}
