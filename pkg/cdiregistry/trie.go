// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"hash/maphash"
	"iter"
	"slices"
)

// keyed is a value that knows its own key, so that a trie need not store it. C is
// what it takes to know it.
type keyed[C any] interface{ key(in C) string }

// nothing is what a value needs that has its key itself.
type nothing struct{}

// edit is the number of a change, not 0, by which the nodes are known that it made and
// may therefore alter in place. Once the change is published its nodes are frozen: no
// other has its number.
type edit uint64

// trie is a persistent hash trie: a copy of the struct is a snapshot, and a
// change copies only the nodes on the way to the value, so that its cost
// does not grow with the number of values. The zero value with a seed is empty.
//
// Values lie together in leaves, so that a trie is few objects for the garbage
// collector, and of values without pointers none that it need look into.
type trie[C any, V keyed[C]] struct {
	root *trieNode[V]
	len  int
	seed maphash.Seed
}

// trieNode is a leaf with some values, or chooses the next node by bits of the hash.
type trieNode[V any] struct {
	owner    edit
	items    []item[V]                // of a leaf, in no order
	children *[trieWidth]*trieNode[V] // nil in a leaf
}

type item[V any] struct {
	hash  uint32
	value V
}

const (
	trieStep  = 4 // bits of the hash that choose a child
	trieWidth = 1 << trieStep
	trieDepth = 32 / trieStep
	// trieLeaf is how many values a leaf has at most, but for one below the last bits.
	trieLeaf = 24
)

func (t *trie[C, V]) hash(key string) uint32 { return uint32(maphash.String(t.seed, key)) }

// branch is which child a hash chooses at a depth.
func branch(hash uint32, depth int) uint32 { return hash >> (depth * trieStep) % trieWidth }

// get is the value of key.
func (t *trie[C, V]) get(in C, key string) (v V, ok bool) {
	n := t.root
	if n == nil {
		return v, false
	}
	h := t.hash(key)
	for depth := 0; n.children != nil; depth++ {
		if n = n.children[branch(h, depth)]; n == nil {
			return v, false
		}
	}
	for i := range n.items {
		if it := &n.items[i]; it.hash == h && it.value.key(in) == key {
			return it.value, true
		}
	}
	return v, false
}

// put adds v or replaces the value of its key.
func (t *trie[C, V]) put(in C, e edit, v V) {
	key := v.key(in)
	t.putHash(in, e, t.hash(key), key, v)
}

func (t *trie[C, V]) putHash(in C, e edit, h uint32, key string, v V) {
	at, depth := &t.root, 0
	for ; *at != nil && (*at).children != nil; depth++ {
		*at = (*at).own(e)
		at = &(*at).children[branch(h, depth)]
	}
	n := (*at).own(e)
	*at = n
	for i := range n.items {
		if it := &n.items[i]; it.hash == h && it.value.key(in) == key {
			it.value = v
			return
		}
	}
	n.add(item[V]{h, v})
	t.len++
	n.split(e, depth)
}

// remove takes the value of key out.
func (t *trie[C, V]) remove(in C, e edit, key string) { t.removeHash(in, e, t.hash(key), key) }

func (t *trie[C, V]) removeHash(in C, e edit, h uint32, key string) {
	same := func(it item[V]) bool { return it.hash == h && it.value.key(in) == key }
	n := t.root
	for depth := 0; n != nil && n.children != nil; depth++ {
		n = n.children[branch(h, depth)]
	}
	if n == nil || !slices.ContainsFunc(n.items, same) {
		return
	}
	var way [trieDepth]*trieNode[V]
	at, depth := &t.root, 0
	for ; (*at).children != nil; depth++ {
		*at = (*at).own(e)
		way[depth] = *at
		at = &(*at).children[branch(h, depth)]
	}
	n = (*at).own(e)
	*at = n
	i := slices.IndexFunc(n.items, same)
	n.items[i] = n.items[len(n.items)-1]
	n.items = slices.Delete(n.items, len(n.items)-1, len(n.items))
	t.len--
	if len(n.items) == 0 {
		*at = nil
	}
	for depth--; depth >= 0 && way[depth].join(); depth-- {
	}
}

// all yields the values in no order.
func (t *trie[C, V]) all() iter.Seq[V] {
	return func(yield func(V) bool) {
		if t.root != nil {
			t.root.each(yield)
		}
	}
}

func (n *trieNode[V]) each(yield func(V) bool) bool {
	for i := range n.items {
		if !yield(n.items[i].value) {
			return false
		}
	}
	if n.children == nil {
		return true
	}
	for _, c := range n.children {
		if c != nil && !c.each(yield) {
			return false
		}
	}
	return true
}

// own is n when the edit made it, a copy otherwise. Of none it is an empty leaf.
func (n *trieNode[V]) own(e edit) *trieNode[V] {
	if n == nil {
		return &trieNode[V]{owner: e}
	}
	if n.owner == e {
		return n
	}
	c := &trieNode[V]{owner: e, items: slices.Clone(n.items)}
	if n.children != nil {
		children := *n.children
		c.children = &children
	}
	return c
}

// add appends to a leaf. It grows by little, for most leaves stay as they are.
func (n *trieNode[V]) add(it item[V]) {
	if len(n.items) == cap(n.items) {
		n.items = append(slices.Grow([]item[V](nil), len(n.items)+4), n.items...)
	}
	n.items = append(n.items, it)
}

// split makes a leaf that has too much into a node with leaves.
func (n *trieNode[V]) split(e edit, depth int) {
	if len(n.items) <= trieLeaf || depth == trieDepth {
		return
	}
	n.children = new([trieWidth]*trieNode[V])
	for _, it := range n.items {
		at := &n.children[branch(it.hash, depth)]
		*at = (*at).own(e)
		(*at).add(it)
	}
	n.items = nil
	for _, c := range n.children {
		if c != nil {
			c.split(e, depth+1)
		}
	}
}

// join undoes split where one leaf has room for all, so that the shape depends on the
// content alone and lookups stay short.
func (n *trieNode[V]) join() bool {
	total := 0
	for _, c := range n.children {
		if c == nil {
			continue
		}
		if total += len(c.items); c.children != nil || total > trieLeaf {
			return false
		}
	}
	for _, c := range n.children {
		if c != nil {
			n.items = append(n.items, c.items...)
		}
	}
	n.children = nil
	return true
}
