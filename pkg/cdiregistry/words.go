// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
)

// words are strings that occur in several files of a registry, which blobs name by
// number: specifications of one vendor differ in little. They are few, of bounded
// length, and stay until the registry goes. All methods are safe for concurrent use,
// and none waits.
//
// It is in use once there are many files; nil, and before, there are no words.
type words struct {
	table atomic.Pointer[wordTable]
}

type wordTable struct {
	seed  maphash.Seed
	slots [1 << wordBits]atomic.Pointer[string]
	// seen has, by some bits of a string's hash, others of it and the hash of the file
	// where the string was last met.
	seen [1 << seenBits]atomic.Uint64
}

const (
	wordBits  = 9
	seenBits  = 10
	wordTries = 4 // slots in which a word may be
	// Shorter strings are as short as a number, and longer ones would make the bound of
	// the memory a large one.
	minWord, maxWord = 4, 128
	// manyFiles is from how many files on words pay for the table.
	manyFiles = 32
)

// begin has words in use for a registry of so many files.
func (w *words) begin(files int) {
	if files >= manyFiles && w.table.Load() == nil {
		w.table.CompareAndSwap(nil, &wordTable{seed: maphash.MakeSeed()})
	}
}

// at is a word by its number.
func (w *words) at(number uint64) string { return *w.table.Load().slots[number].Load() }

// file is what tells a file from others for number.
func (t *wordTable) file(path string) uint32 { return uint32(maphash.String(t.seed, path)) }

// number is that of a string of a file, if it is a word. It becomes one when another
// file has had it: one that is written again and again brings none.
func (t *wordTable) number(s string, file uint32) (n uint64, ok bool) {
	if len(s) < minWord || len(s) > maxWord {
		return 0, false
	}
	h := maphash.String(t.seed, s)
	for i := range uint64(wordTries) {
		n = (h + i) % (1 << wordBits)
		word := t.slots[n].Load()
		if word == nil {
			return n, t.met(h, file) && t.add(n, s)
		}
		if *word == s {
			return n, true
		}
	}
	return 0, false
}

// met notes that a file has a string, and tells whether another had it.
func (t *wordTable) met(h uint64, file uint32) bool {
	last := &t.seen[h>>wordBits%(1<<seenBits)]
	now := h&^(1<<32-1) | uint64(file)
	was := last.Swap(now)
	return was != now && was>>32 == h>>32
}

// add makes a string the word of a slot, unless another was quicker.
func (t *wordTable) add(n uint64, s string) bool {
	s = strings.Clone(s)
	return t.slots[n].CompareAndSwap(nil, &s) || *t.slots[n].Load() == s
}
