// SPDX-License-Identifier: Apache-2.0

package telemetry

import "sync/atomic"

// Counters count the outcomes of requests and the containers they came from.
// The zero value is ready.
type Counters struct {
	Containers Counter // containers that were looked at
	Untouched  Counter // of these: asked for nothing
	Injected   Counter // requests delivered
	Present    Counter // requests whose edits the container had already
	LeftAlone  Counter // attachments that no rule puts Jackfield in charge of
	Skipped    Counter // optional requests that could not be delivered
	Refused    Counter // requests refused by policy
	Failed     Counter // requests that failed for another reason
	Audited    Counter // requests that mode enforce would have refused
	TimedOut   Counter // containers given up before the runtime's deadline
}

// Counter is one number that only grows.
type Counter struct{ n atomic.Uint64 }

// Add adds one.
func (c *Counter) Add() { c.n.Add(1) }

// Load is the count.
func (c *Counter) Load() uint64 { return c.n.Load() }

// Each calls yield with every counter's name and value, in a fixed order.
func (c *Counters) Each(yield func(name string, value uint64) bool) {
	for _, e := range []struct {
		name string
		c    *Counter
	}{
		{"containers", &c.Containers}, {"untouched", &c.Untouched}, {"injected", &c.Injected}, {"present", &c.Present},
		{"leftAlone", &c.LeftAlone}, {"skipped", &c.Skipped}, {"refused", &c.Refused}, {"failed", &c.Failed},
		{"audited", &c.Audited}, {"timedOut", &c.TimedOut},
	} {
		if !yield(e.name, e.c.Load()) {
			return
		}
	}
}
