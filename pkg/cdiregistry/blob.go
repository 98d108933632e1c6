// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"encoding/binary"
	"os"

	specs "tags.cncf.io/container-device-interface/specs-go"
)

// A validated spec file is kept as one string, its "blob": about a third of
// the text's size and a single object for the garbage collector. Strings that
// occur again refer to their first place. A lookup decodes the spec-level edits
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

// blobWriter encodes. It is reused from file to file.
type blobWriter struct {
	b []byte
	// seen maps a few bits of a string's hash to where it was last written, plus one.
	seen    [256]uint32
	offsets []uint32
	strings int // in the lists of the edits being written
}

func (w *blobWriter) reset() {
	w.b = w.b[:0]
	w.offsets = w.offsets[:0]
	clear(w.seen[:])
}

func (w *blobWriter) byte(c byte)   { w.b = append(w.b, c) }
func (w *blobWriter) uint(v uint64) { w.b = binary.AppendUvarint(w.b, v) }

// str writes s, or a reference to where s is already.
func (w *blobWriter) str(s string) {
	if len(s) < 3 {
		w.uint(uint64(len(s)) << 1)
		w.b = append(w.b, s...)
		return
	}
	h := uint32(len(s))
	for _, c := range [...]byte{s[0], s[len(s)/2], s[len(s)-2], s[len(s)-1]} {
		h = (h ^ uint32(c)) * 0x01000193
	}
	slot := &w.seen[(h^h>>15)&255]
	if *slot != 0 {
		at := int(*slot - 1)
		n, k := binary.Uvarint(w.b[at:])
		if n>>1 == uint64(len(s)) && string(w.b[at+k:at+k+len(s)]) == s {
			w.uint(uint64(at)<<1 | 1)
			return
		}
	}
	*slot = uint32(len(w.b)) + 1
	w.uint(uint64(len(s)) << 1)
	w.b = append(w.b, s...)
}

// device begins the next device.
func (w *blobWriter) device(name string) {
	w.offsets = append(w.offsets, uint32(len(w.b)))
	w.str(name)
}

// begin leaves room for the number of strings in edits; end fills it in.
func (w *blobWriter) begin() (at int) {
	w.b = append(w.b, 0, 0)
	w.strings = 0
	return len(w.b) - 2
}

func (w *blobWriter) end(at int) {
	n := min(w.strings, 1<<16-1)
	w.b[at], w.b[at+1] = byte(n), byte(n>>8)
	w.byte(tagEnd)
}

// finish is the blob, and a copy of a path in the same piece of memory: a snapshot has
// many files, and each piece costs the garbage collector.
func (w *blobWriter) finish(path string) (b blob, copied string) {
	for _, o := range w.offsets {
		w.b = binary.LittleEndian.AppendUint32(w.b, o)
	}
	n := len(w.b)
	w.b = append(w.b, path...)
	all := string(w.b)
	return blob{s: all[:n], n: len(w.offsets)}, all[n:]
}

// blobReader decodes what blobWriter wrote.
type blobReader struct {
	s    string
	i    int
	pool []string // for the lists of the edits being read
	mem  *editsMemory
}

// editsMemory is what edits are decoded into again and again.
type editsMemory struct {
	lists    *lists
	edits    *specs.ContainerEdits
	env      []string
	nodes    []specs.DeviceNode
	nodeList []*specs.DeviceNode
	mounts   []specs.Mount
	mountsOf []*specs.Mount
	hooks    []specs.Hook
	hookList []*specs.Hook
}

// take gives room for n values, that of have when it is enough. Something may be in
// it: each is to be written whole.
func take[T any](have *[]T, n int) []T {
	if cap(*have) < n {
		*have = make([]T, n)
	}
	return (*have)[:n]
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
	if v&1 != 0 {
		back := blobReader{s: r.s, i: int(v >> 1)}
		return back.here()
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

// edits decodes edits into memory of their own, or into the reader's. The lists of
// strings but env, which is the first list, are always their own.
func (r *blobReader) edits() *specs.ContainerEdits {
	m := r.mem
	var e *specs.ContainerEdits
	if m == nil {
		e, m = &specs.ContainerEdits{}, &editsMemory{}
	} else {
		if m.edits == nil {
			m.edits = &specs.ContainerEdits{}
		}
		e = m.edits
		*e = specs.ContainerEdits{}
	}
	n := int(r.byte()) | int(r.byte())<<8
	r.pool = nil
	if r.mem == nil && n > 0 {
		r.pool = make([]string, n)
	}
	tag := r.byte()
	if tag == tagEnv {
		if r.mem == nil {
			e.Env = r.strs()
		} else {
			e.Env = take(&m.env, int(r.uint()))
			for i := range e.Env {
				e.Env[i] = r.str()
			}
			n -= len(e.Env)
		}
		tag = r.byte()
	}
	if r.mem != nil && n > 0 {
		r.pool = m.lists.room(n)
	}
	for ; ; tag = r.byte() {
		switch tag {
		case tagEnd:
			return e
		case tagDeviceNodes:
			e.DeviceNodes = r.deviceNodes(m)
		case tagNetDevices:
			devs := make([]specs.LinuxNetDevice, r.uint())
			e.NetDevices = make([]*specs.LinuxNetDevice, len(devs))
			for i := range devs {
				devs[i] = specs.LinuxNetDevice{HostInterfaceName: r.str(), Name: r.str()}
				e.NetDevices[i] = &devs[i]
			}
		case tagHooks:
			e.Hooks = r.hooks(m)
		case tagMounts:
			mounts := take(&m.mounts, int(r.uint()))
			e.Mounts = take(&m.mountsOf, len(mounts))
			for i := range mounts {
				mounts[i] = specs.Mount{HostPath: r.str(), ContainerPath: r.str(), Type: r.str(), Options: r.strs()}
				e.Mounts[i] = &mounts[i]
			}
		case tagIntelRdt:
			flags := r.byte()
			rdt := &specs.IntelRdt{ClosID: r.str(), L3CacheSchema: r.str(), MemBwSchema: r.str()}
			rdt.EnableMonitoring = flags&rdtMonitoring != 0
			if flags&rdtSchemata != 0 {
				rdt.Schemata = append([]string{}, r.strs()...)
			}
			e.IntelRdt = rdt
		case tagGIDs:
			e.AdditionalGIDs = make([]uint32, r.uint())
			for i := range e.AdditionalGIDs {
				e.AdditionalGIDs[i] = uint32(r.uint())
			}
		}
	}
}

func (r *blobReader) deviceNodes(m *editsMemory) []*specs.DeviceNode {
	nodes := take(&m.nodes, int(r.uint()))
	list := take(&m.nodeList, len(nodes))
	for i := range nodes {
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
		nodes[i] = n
		list[i] = &nodes[i]
	}
	return list
}

func (r *blobReader) hooks(m *editsMemory) []*specs.Hook {
	hooks := take(&m.hooks, int(r.uint()))
	list := take(&m.hookList, len(hooks))
	for i := range hooks {
		h := specs.Hook{HookName: r.str(), Path: r.str(), Args: r.strs(), Env: r.strs()}
		if t := r.uint(); t != 0 {
			seconds := int(t)
			h.Timeout = &seconds
		}
		hooks[i] = h
		list[i] = &hooks[i]
	}
	return list
}

// blob is a finished blob with the number of its devices.
type blob struct {
	s string
	n int
}

func (b blob) version() string { return knownVersions[b.s[0]] }

func (b blob) kind() string {
	r := blobReader{s: b.s, i: 1}
	return r.str()
}

// at is a reader placed on device i.
func (b blob) at(i int) blobReader {
	t := b.s[len(b.s)-4*(b.n-i):]
	off := uint32(t[0]) | uint32(t[1])<<8 | uint32(t[2])<<16 | uint32(t[3])<<24
	return blobReader{s: b.s, i: int(off)}
}

func (b blob) deviceName(i int) string {
	r := b.at(i)
	return r.str()
}

// fill decodes device i and what belongs to the file, but for the name.
func (b blob) fill(i int, d *Device) {
	r := blobReader{s: b.s, i: 1}
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

// fillInto is fill without annotations, into memory that is used again.
func (b blob) fillInto(i int, d *Device, spec, edits *editsMemory) {
	r := blobReader{s: b.s, i: 1, mem: spec}
	d.CDIVersion = b.version()
	d.Kind = r.str()
	r.skipNotes()
	d.SpecEdits = r.edits()
	r = b.at(i)
	r.mem = edits
	r.str()
	d.Index = i
	r.skipNotes()
	d.Edits = r.edits()
}

// spec decodes the whole file.
func (b blob) spec() *specs.Spec {
	r := blobReader{s: b.s, i: 1}
	s := &specs.Spec{Version: b.version(), Kind: r.str(), Annotations: r.notes()}
	s.ContainerEdits = *r.edits()
	s.Devices = make([]specs.Device, b.n)
	for i := range s.Devices {
		s.Devices[i] = specs.Device{Name: r.str(), Annotations: r.notes(), ContainerEdits: *r.edits()}
	}
	return s
}
