// SPDX-License-Identifier: Apache-2.0

package edit

import "slices"

// keyedList is a list with one item per key. It finds an item by its key in constant time, because "all" of a CDI kind
// can be thousands of devices.
type keyedList[T any] struct {
	base      *keyedList[T] // of a delta, which reads it; nil for none
	items     []T
	positions map[string]int // by key; nil for a short list
	key       func(*T) string
}

// maxShort is the length of a list up to which a search is cheaper than a map.
const maxShort = 8

// find returns the item with a key, from the list or its base, or nil.
func (l *keyedList[T]) find(key string) *T {
	if i := l.position(key); i >= 0 {
		return &l.items[i]
	}
	if l.base != nil {
		return l.base.find(key)
	}
	return nil
}

// position returns the index of the item with a key, or -1.
func (l *keyedList[T]) position(key string) int {
	if l.positions != nil {
		if i, ok := l.positions[key]; ok {
			return i
		}
		return -1
	}
	for i := range l.items {
		if l.key(&l.items[i]) == key {
			return i
		}
	}
	return -1
}

// put replaces the item with the same key in place, or appends the item.
func (l *keyedList[T]) put(item *T) {
	if i := l.position(l.key(item)); i >= 0 {
		l.items[i] = *item
		return
	}
	l.append(*item)
	l.index(len(l.items) - 1)
}

// append appends an item. A list of a container grows to several items, and one of a delta mostly has one.
func (l *keyedList[T]) append(item T) {
	if l.items == nil && l.base == nil {
		l.items = make([]T, 0, maxShort)
	}
	l.items = append(l.items, item)
}

// moveToEnd deletes the item with the same key and appends the item. Most items that it deletes are near the end.
func (l *keyedList[T]) moveToEnd(item *T) {
	from := len(l.items)
	if i := l.position(l.key(item)); i >= 0 {
		l.items, from = slices.Delete(l.items, i, i+1), i
	}
	l.append(*item)
	l.index(from)
}

// index updates the positions of the items at from and after it.
func (l *keyedList[T]) index(from int) {
	if l.positions == nil {
		if len(l.items) <= maxShort {
			return
		}
		l.positions, from = make(map[string]int), 0
	}
	for i := from; i < len(l.items); i++ {
		l.positions[l.key(&l.items[i])] = i
	}
}
