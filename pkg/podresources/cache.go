// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"container/list"
	"time"
)

// maxCached is the largest pod's part of an answer that is kept, in bytes. A
// pod's devices take a few kilobytes.
const maxCached = 64 << 10

// cache keeps answers, the most recently used ones. Of one pod name it keeps one
// generation only: the UID asked about last.
type cache struct {
	max   int
	order *list.List // of *cached, most recently used first
	byPod map[podName]*list.Element
}

type podName struct{ namespace, name string }

type cached struct {
	key   PodKey
	a     Allocation
	err   error     // a miss
	until time.Time // of a miss
}

func newCache(max int) *cache {
	return &cache{max: max, order: list.New(), byPod: map[podName]*list.Element{}}
}

func (c *cache) get(key PodKey, now time.Time) (Allocation, error, bool) {
	el := c.byPod[podName{key.Namespace, key.Name}]
	if el == nil {
		return Allocation{}, nil, false
	}
	e := el.Value.(*cached)
	if e.key != key || e.err != nil && now.After(e.until) {
		return Allocation{}, nil, false
	}
	c.order.MoveToFront(el)
	return e.a.Clone(), e.err, true
}

func (c *cache) put(e *cached) {
	c.drop(podName{e.key.Namespace, e.key.Name})
	c.byPod[podName{e.key.Namespace, e.key.Name}] = c.order.PushFront(e)
	for c.order.Len() > c.max {
		last := c.order.Back().Value.(*cached)
		c.drop(podName{last.key.Namespace, last.key.Name})
	}
}

func (c *cache) forget(key PodKey) {
	n := podName{key.Namespace, key.Name}
	if el := c.byPod[n]; el != nil && el.Value.(*cached).key == key {
		c.drop(n)
	}
}

func (c *cache) drop(n podName) {
	if el := c.byPod[n]; el != nil {
		c.order.Remove(el)
		delete(c.byPod, n)
	}
}
