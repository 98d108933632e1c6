// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"hash/maphash"
	"iter"
	"math/bits"
	"slices"
)

// keyed is a value that knows its own key, so that a trie need not store it.
type keyed interface{ key() string }

// edit is the number of a change, not 0, by which the nodes are known that it made and
// may therefore alter in place. Once the change is published its nodes are frozen: no
// other has its number.
type edit uint64

// trie is a persistent hash trie: a copy of the struct is a snapshot, and a
// change copies only the nodes on the way to the value, so that its cost
// does not grow with the number of values. The zero value with a seed is empty.
type trie[V keyed] struct {
	root *trieNode[V]
	len  int
	seed maphash.Seed
}

// trieNode holds up to 32 values or subtrees, chosen by five bits of the hash.
// Below the last bits vals is a plain list of the values whose hashes are equal.
type trieNode[V keyed] struct {
	owner     edit
	valBits   uint32
	childBits uint32
	vals      []V
	children  []*trieNode[V]
}

const (
	trieStep  = 5
	trieDepth = 60 // hash bits used; what is still equal then is listed
)

func (t *trie[V]) hash(key string) uint64 { return maphash.String(t.seed, key) }

// get is the value of key.
func (t *trie[V]) get(key string) (V, bool) {
	var none V
	n := t.root
	if n == nil {
		return none, false
	}
	h := t.hash(key)
	for shift := uint(0); ; shift += trieStep {
		if shift >= trieDepth {
			for _, v := range n.vals {
				if v.key() == key {
					return v, true
				}
			}
			break
		}
		bit := uint32(1) << (h >> shift & 31)
		if n.valBits&bit != 0 {
			if v := n.vals[place(n.valBits, bit)]; v.key() == key {
				return v, true
			}
			break
		}
		if n.childBits&bit == 0 {
			break
		}
		n = n.children[place(n.childBits, bit)]
	}
	return none, false
}

// put adds v or replaces the value of its key.
func (t *trie[V]) put(e edit, v V) {
	key := v.key()
	if t.root == nil {
		t.root = &trieNode[V]{owner: e}
	}
	root, added := t.root.put(t, e, 0, t.hash(key), key, v)
	t.root = root
	if added {
		t.len++
	}
}

// remove takes the value of key out.
func (t *trie[V]) remove(e edit, key string) {
	if t.root == nil {
		return
	}
	root, removed := t.root.remove(e, 0, t.hash(key), key)
	if removed {
		t.len--
		t.root = root
		if t.len == 0 {
			t.root = nil
		}
	}
}

// all yields the values in no order.
func (t *trie[V]) all() iter.Seq[V] {
	return func(yield func(V) bool) {
		if t.root != nil {
			t.root.each(yield)
		}
	}
}

func (n *trieNode[V]) each(yield func(V) bool) bool {
	for _, v := range n.vals {
		if !yield(v) {
			return false
		}
	}
	for _, c := range n.children {
		if !c.each(yield) {
			return false
		}
	}
	return true
}

// own is n when the edit made it, a copy otherwise.
func (n *trieNode[V]) own(e edit) *trieNode[V] {
	if n.owner == e {
		return n
	}
	c := *n
	c.owner = e
	c.vals = slices.Clone(n.vals)
	c.children = slices.Clone(n.children)
	return &c
}

func (n *trieNode[V]) put(t *trie[V], e edit, shift uint, h uint64, key string, v V) (*trieNode[V], bool) {
	n = n.own(e)
	if shift >= trieDepth {
		for i := range n.vals {
			if n.vals[i].key() == key {
				n.vals[i] = v
				return n, false
			}
		}
		n.vals = append(n.vals, v)
		return n, true
	}
	bit := uint32(1) << (h >> shift & 31)
	switch {
	case n.childBits&bit != 0:
		i := place(n.childBits, bit)
		child, added := n.children[i].put(t, e, shift+trieStep, h, key, v)
		n.children[i] = child
		return n, added
	case n.valBits&bit == 0:
		n.vals = slices.Insert(n.vals, place(n.valBits, bit), v)
		n.valBits |= bit
		return n, true
	}
	i := place(n.valBits, bit)
	old := n.vals[i]
	if old.key() == key {
		n.vals[i] = v
		return n, false
	}
	// Two values at one place: both move one level down.
	child := &trieNode[V]{owner: e}
	child, _ = child.put(t, e, shift+trieStep, t.hash(old.key()), old.key(), old)
	child, _ = child.put(t, e, shift+trieStep, h, key, v)
	n.vals = slices.Delete(n.vals, i, i+1)
	n.valBits &^= bit
	n.children = slices.Insert(n.children, place(n.childBits, bit), child)
	n.childBits |= bit
	return n, true
}

func (n *trieNode[V]) remove(e edit, shift uint, h uint64, key string) (*trieNode[V], bool) {
	if shift >= trieDepth {
		i := slices.IndexFunc(n.vals, func(v V) bool { return v.key() == key })
		if i < 0 {
			return n, false
		}
		n = n.own(e)
		n.vals = slices.Delete(n.vals, i, i+1)
		return n, true
	}
	bit := uint32(1) << (h >> shift & 31)
	if n.valBits&bit != 0 {
		i := place(n.valBits, bit)
		if n.vals[i].key() != key {
			return n, false
		}
		n = n.own(e)
		n.vals = slices.Delete(n.vals, i, i+1)
		n.valBits &^= bit
		return n, true
	}
	if n.childBits&bit == 0 {
		return n, false
	}
	i := place(n.childBits, bit)
	child, removed := n.children[i].remove(e, shift+trieStep, h, key)
	if !removed {
		return n, false
	}
	n = n.own(e)
	// A child with one value left gives it back, so that the shape depends on the
	// content alone and lookups stay short.
	if len(child.children) == 0 && len(child.vals) <= 1 {
		n.children = slices.Delete(n.children, i, i+1)
		n.childBits &^= bit
		if len(child.vals) == 1 {
			n.vals = slices.Insert(n.vals, place(n.valBits, bit), child.vals[0])
			n.valBits |= bit
		}
		return n, true
	}
	n.children[i] = child
	return n, true
}

// place is the index of bit among the bits set.
func place(set, bit uint32) int { return bits.OnesCount32(set & (bit - 1)) }
