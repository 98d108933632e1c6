// SPDX-License-Identifier: Apache-2.0

package podresources

import "time"

// cache keeps the most recently used answers. It keeps one answer per pod name, for the UID
// of the latest request.
type cache struct {
	limit int
	byPod map[podName]cached
}

type podName struct{ namespace, name string }

type cached struct {
	key    PodKey
	answer Allocation
	err    error     // the kubelet does not know the pod
	until  time.Time // end of validity of err
	used   time.Time
}

func newCache(limit int) *cache { return &cache{limit: limit, byPod: map[podName]cached{}} }

func (c *cache) findAnswer(key PodKey, now time.Time) (Allocation, error, bool) {
	name := podName{key.Namespace, key.Name}
	e, ok := c.byPod[name]
	if !ok || e.key != key || e.err != nil && now.After(e.until) {
		return Allocation{}, nil, false
	}
	e.used = now
	c.byPod[name] = e
	return e.answer.Clone(), e.err, true
}

func (c *cache) keepAnswer(key PodKey, e cached, now time.Time) {
	e.key, e.used = key, now
	c.byPod[podName{key.Namespace, key.Name}] = e
	for len(c.byPod) > c.limit {
		var oldest podName
		for name, other := range c.byPod {
			if first := c.byPod[oldest]; first.used.IsZero() || other.used.Before(first.used) {
				oldest = name
			}
		}
		delete(c.byPod, oldest)
	}
}
