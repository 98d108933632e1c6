// SPDX-License-Identifier: Apache-2.0

package edit

import "slices"

// keyedList is a list with one item per key. It finds an item by its key in constant time, because "all" of a CDI kind
// can be thousands of devices.
type keyedList[T any] struct {
	items     []T
	positions map[string]int // by key
	key       func(*T) string
}

// find returns the item with a key, or nil.
func (l *keyedList[T]) find(key string) *T {
	if i, ok := l.positions[key]; ok {
		return &l.items[i]
	}
	return nil
}

// set replaces the item with the same key in place, or appends the item.
func (l *keyedList[T]) set(item T) {
	if have := l.find(l.key(&item)); have != nil {
		*have = item
		return
	}
	l.append(item)
}

// moveToEnd deletes the item with the same key and appends the item. Most items that it deletes are near the end.
func (l *keyedList[T]) moveToEnd(item T) {
	if at, ok := l.positions[l.key(&item)]; ok {
		l.items = slices.Delete(l.items, at, at+1)
		for i := at; i < len(l.items); i++ {
			l.positions[l.key(&l.items[i])] = i
		}
	}
	l.append(item)
}

func (l *keyedList[T]) append(item T) {
	if l.positions == nil {
		l.positions = make(map[string]int)
	}
	l.positions[l.key(&item)] = len(l.items)
	l.items = append(l.items, item)
}
