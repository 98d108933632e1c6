// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"testing"
)

type word string

func (w word) key(nothing) string { return string(w) }

// TestTrieAgainstMap holds the trie to a plain map, and old copies to what they
// held when they were taken.
func TestTrieAgainstMap(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	tr := trie[nothing, word]{seed: maphash.MakeSeed()}
	want := map[string]bool{}
	type past struct {
		tr   trie[nothing, word]
		want map[string]bool
	}
	var pasts []past
	for n := range 300 {
		e := edit(n + 1)
		for range rnd.IntN(40) {
			k := fmt.Sprint("k", rnd.IntN(3000))
			if rnd.IntN(3) == 0 {
				tr.remove(nothing{}, e, k)
				delete(want, k)
			} else {
				tr.put(nothing{}, e, word(k))
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
			if !p.want[v.key(nothing{})] {
				t.Fatalf("copy %d holds %q", i, v)
			}
		}
		if n != len(p.want) {
			t.Fatalf("copy %d yields %d values, want %d", i, n, len(p.want))
		}
		for k := range p.want {
			if v, ok := p.tr.get(nothing{}, k); !ok || v.key(nothing{}) != k {
				t.Fatalf("copy %d misses %q", i, k)
			}
		}
		if _, ok := p.tr.get(nothing{}, "absent"); ok {
			t.Fatal("an absent key is found")
		}
	}
}

// TestTrieEqualHashes drives the leaf of values whose hashes are equal, beside others.
func TestTrieEqualHashes(t *testing.T) {
	tr := trie[nothing, word]{seed: maphash.MakeSeed()}
	for i := range 100 {
		tr.put(nothing{}, 1, word(fmt.Sprint("other", i)))
	}
	others := tr
	for i := range 50 {
		k := fmt.Sprint(i)
		tr.putHash(nothing{}, 1, 42, k, word(k))
		tr.putHash(nothing{}, 1, 42, k, word(k))
		if tr.len != 101+i {
			t.Fatalf("%d values after %d", tr.len, 101+i)
		}
	}
	frozen := tr
	for i := range 50 {
		for range 2 {
			tr.removeHash(nothing{}, 2, 42, fmt.Sprint(i))
		}
		if tr.len != 149-i {
			t.Fatalf("%d values left, want %d", tr.len, 149-i)
		}
	}
	equal := 0
	for range frozen.all() {
		equal++
	}
	if frozen.len != 150 || equal != 150 || others.len != 100 {
		t.Errorf("the copies hold %d (%d of them found) and %d values", frozen.len, equal, others.len)
	}
}

// TestTrieShape: the shape depends on the content alone, however it came about.
func TestTrieShape(t *testing.T) {
	seed := maphash.MakeSeed()
	var shape func(n *trieNode[word]) string
	shape = func(n *trieNode[word]) string {
		if n == nil {
			return "-"
		}
		if n.children == nil {
			if len(n.items) == 0 || len(n.items) > trieLeaf {
				t.Fatalf("a leaf with %d values", len(n.items))
			}
			return fmt.Sprint(len(n.items))
		}
		out := "("
		for _, c := range n.children {
			out += shape(c) + " "
		}
		return out + ")"
	}
	rnd := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{0, 1, trieLeaf, trieLeaf + 1, 400, 5000} {
		direct, around := trie[nothing, word]{seed: seed}, trie[nothing, word]{seed: seed}
		e := edit(1)
		for i := range n {
			direct.put(nothing{}, e, word(fmt.Sprint(i)))
		}
		for _, i := range rnd.Perm(2 * n) {
			e++
			around.put(nothing{}, e, word(fmt.Sprint(i)))
		}
		for _, i := range rnd.Perm(2 * n) {
			if i >= n {
				e++
				around.remove(nothing{}, e, fmt.Sprint(i))
			}
		}
		if a, b := shape(direct.root), shape(around.root); a != b {
			t.Errorf("%d values: %s, want %s", n, b, a)
		}
	}
}

func BenchmarkTriePut(b *testing.B) {
	for _, n := range []int{100, 20000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			tr := trie[nothing, word]{seed: maphash.MakeSeed()}
			e := edit(1)
			for i := range n {
				tr.put(nothing{}, e, word(fmt.Sprint("device-", i)))
			}
			b.ReportAllocs()
			for b.Loop() {
				c := tr
				e++
				c.put(nothing{}, e, "another")
			}
		})
	}
}
