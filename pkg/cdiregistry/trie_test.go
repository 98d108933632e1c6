// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"testing"
)

type word string

func (w word) key() string { return string(w) }

// TestTrieAgainstMap holds the trie to a plain map, and old copies to what they
// held when they were taken.
func TestTrieAgainstMap(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	tr := trie[word]{seed: maphash.MakeSeed()}
	want := map[string]bool{}
	type past struct {
		tr   trie[word]
		want map[string]bool
	}
	var pasts []past
	for n := range 300 {
		e := edit(n + 1)
		for range rnd.IntN(40) {
			k := fmt.Sprint("k", rnd.IntN(3000))
			if rnd.IntN(3) == 0 {
				tr.remove(e, k)
				delete(want, k)
			} else {
				tr.put(e, word(k))
				want[k] = true
			}
		}
		if rnd.IntN(20) == 0 {
			c := map[string]bool{}
			for k := range want {
				c[k] = true
			}
			pasts = append(pasts, past{tr, c})
		}
	}
	pasts = append(pasts, past{tr, want})
	for i, p := range pasts {
		if p.tr.len != len(p.want) {
			t.Fatalf("copy %d: length %d, want %d", i, p.tr.len, len(p.want))
		}
		n := 0
		for v := range p.tr.all() {
			n++
			if !p.want[v.key()] {
				t.Fatalf("copy %d holds %q", i, v)
			}
		}
		if n != len(p.want) {
			t.Fatalf("copy %d yields %d values, want %d", i, n, len(p.want))
		}
		for k := range p.want {
			if v, ok := p.tr.get(k); !ok || v.key() != k {
				t.Fatalf("copy %d misses %q", i, k)
			}
		}
		if _, ok := p.tr.get("absent"); ok {
			t.Fatal("an absent key is found")
		}
	}
}

// TestTrieEqualHashes drives the list of values whose hashes are equal.
func TestTrieEqualHashes(t *testing.T) {
	tr := trie[word]{seed: maphash.MakeSeed()}
	e := edit(1)
	n := &trieNode[word]{owner: e}
	for i := range 50 {
		k := fmt.Sprint(i)
		var added bool
		if n, added = n.put(&tr, e, trieDepth, 42, k, word(k)); !added {
			t.Fatalf("%q not added", k)
		}
	}
	if _, added := n.put(&tr, e, trieDepth, 42, "7", "7"); added {
		t.Error("a key is added twice")
	}
	frozen, e := n, edit(2)
	for i := range 50 {
		var removed bool
		if n, removed = n.remove(e, trieDepth, 42, fmt.Sprint(i)); !removed {
			t.Fatalf("%d not removed", i)
		}
	}
	if len(n.vals) != 0 || len(frozen.vals) != 50 {
		t.Errorf("%d values left, %d in the copy", len(n.vals), len(frozen.vals))
	}
	if _, removed := n.remove(e, trieDepth, 42, "7"); removed {
		t.Error("removed twice")
	}
}

func BenchmarkTriePut(b *testing.B) {
	for _, n := range []int{100, 20000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			tr := trie[word]{seed: maphash.MakeSeed()}
			e := edit(1)
			for i := range n {
				tr.put(e, word(fmt.Sprint("device-", i)))
			}
			b.ReportAllocs()
			for b.Loop() {
				c := tr
				e++
				c.put(e, "another")
			}
		})
	}
}
