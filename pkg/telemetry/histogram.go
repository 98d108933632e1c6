// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Handler is one of the runtime's calls.
type Handler uint8

// The handlers.
const (
	Configure Handler = iota
	Synchronize
	RunPodSandbox
	CreateContainer
	ValidateContainerAdjustment
	StartContainer
	StopContainer
	RemoveContainer
	RemovePodSandbox
	Handlers
)

// String is the handler's label: the call's name in the NRI protocol.
func (h Handler) String() string {
	return [Handlers]string{"Configure", "Synchronize", "RunPodSandbox", "CreateContainer", "ValidateContainerAdjustment", "StartContainer", "StopContainer", "RemoveContainer", "RemovePodSandbox"}[h]
}

// buckets is the number of a histogram's bounds.
const buckets = 14

// bounds are the upper bounds of the buckets, in nanoseconds: from what a
// container costs that asks for nothing to the runtime's deadline of two seconds.
func bounds() [buckets]int64 {
	const us, ms = int64(time.Microsecond), int64(time.Millisecond)
	return [buckets]int64{10 * us, 25 * us, 50 * us, 100 * us, 250 * us, 500 * us, ms, 5 * ms / 2, 5 * ms, 10 * ms, 50 * ms, 250 * ms, 1000 * ms, 2000 * ms}
}

// Histogram counts durations in fixed buckets. The zero value is ready.
type Histogram struct {
	counts [buckets + 1]atomic.Uint64 // the last is of what is longer than every bound
	sum    atomic.Int64               // nanoseconds
}

// Observe counts one duration.
func (h *Histogram) Observe(d time.Duration) {
	i, n := 0, int64(d)
	for _, bound := range bounds() {
		if n <= bound {
			break
		}
		i++
	}
	h.counts[i].Add(1)
	h.sum.Add(n)
}

// Count is the number of durations.
func (h *Histogram) Count() uint64 {
	var n uint64
	for i := range h.counts {
		n += h.counts[i].Load()
	}
	return n
}

// maxNames bounds the names of a ByName: a rule's name can change with every
// configuration, and what is counted is kept while the process lives.
const maxNames = 200

// others is the name under which what is more than maxNames is counted.
const others = "(others)"

// ByName counts by a name. The zero value is ready.
type ByName struct {
	mu sync.Mutex
	n  map[string]uint64
}

// Add adds one to a name's count. It allocates for a name it has not seen.
func (b *ByName) Add(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.n == nil {
		b.n = make(map[string]uint64)
	}
	if _, known := b.n[name]; !known && len(b.n) >= maxNames {
		name = others
	}
	b.n[name]++
}

// each calls yield with every name and its count, sorted by name.
func (b *ByName) each(yield func(name string, n uint64)) {
	b.mu.Lock()
	n := maps.Clone(b.n)
	b.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(n)) {
		yield(name, n[name])
	}
}
