// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import "encoding/binary"

// blobWriter encodes. It is reused from file to file.
type blobWriter struct {
	b []byte
	// seen maps a few bits of a string's hash to where it was last written, plus one.
	seen    [256]uint32
	offsets []uint32
	strings int // in the lists of the edits being written

	words *wordTable // nil for none
	file  uint32     // the file's, for words
}

func (w *blobWriter) reset() {
	w.b = w.b[:0]
	w.offsets = w.offsets[:0]
	clear(w.seen[:])
}

func (w *blobWriter) byte(c byte)   { w.b = append(w.b, c) }
func (w *blobWriter) uint(v uint64) { w.b = binary.AppendUvarint(w.b, v) }

// str writes s, or a reference to where s is already, or its number.
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
			w.uint(uint64(at)<<2 | 1)
			return
		}
	}
	if w.words != nil {
		if n, ok := w.words.number(s, w.file); ok {
			w.uint(n<<2 | 3)
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

// finish is the blob, and behind it in the same piece of memory the file's path: a
// snapshot has many files, and each piece costs the garbage collector.
func (w *blobWriter) finish(path string) piece {
	for _, o := range w.offsets {
		w.b = binary.LittleEndian.AppendUint32(w.b, o)
	}
	n := len(w.b)
	w.b = append(w.b, path...)
	return piece{all: string(w.b), blob: uint32(n), devices: uint32(len(w.offsets))}
}

// piece is what a file is kept as: its blob, empty when the file is refused, and its
// path.
type piece struct {
	all     string
	blob    uint32 // length
	devices uint32 // in the blob
}

func (p *piece) path() string { return p.all[p.blob:] }

func (p *piece) content(w *words) blob {
	return blob{s: p.all[:p.blob], n: int(p.devices), words: w}
}
