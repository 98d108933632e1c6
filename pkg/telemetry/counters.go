// SPDX-License-Identifier: Apache-2.0

package telemetry

import "sync/atomic"

// Counters count what an adapter does. The zero value is ready.
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

	// Requests are the same requests by where they came from and what became of
	// them.
	Requests [Sources][Outcomes]Counter
	// RefusedBy are the refusals by the rule that came closest.
	RefusedBy ByName
	// Handlers are the times that handlers took, and Timeouts those that were given
	// up.
	Handlers [Handlers]Histogram
	Timeouts [Handlers]Counter

	Connections   Counter // registrations with a runtime
	Rebinds       Counter // sockets bound again in a running container's staging
	HotPlugs      Counter // running containers whose networks changed
	StagingFailed Counter // work for sockets of running containers that failed
	CleanupFailed Counter // removals that left something behind
	StatusFailed  Counter // records of what containers were given that could not be kept
	Panics        Counter // defects that were caught
	AuditLines    Counter // lines written to the audit file
	AuditDropped  Counter // lines that the audit file was too slow for
	AuditFailed   Counter // lines that the audit file did not take
	LogDropped    Counter // log lines that the log's reader was too slow for
}

// Source is where a request came from.
type Source uint8

// The sources. SourceContainer is for what cannot be laid at one request's door,
// such as an annotation that cannot be read, a limit, or what another plugin injects.
const (
	SourceCDI Source = iota
	SourceNetwork
	SourceResource
	SourceHook
	SourceDeviceInjector
	SourceContainer
	Sources
)

// String is the source's label.
func (s Source) String() string {
	return [Sources]string{"cdi", "network", "resource", "hook", "device-injector", "container"}[s]
}

// Outcome is what became of a request.
type Outcome uint8

// The outcomes.
const (
	Injected Outcome = iota
	Present
	LeftAlone
	Skipped
	Refused
	Failed
	Outcomes
)

// String is the outcome's label.
func (o Outcome) String() string {
	return [Outcomes]string{"injected", "present", "left_alone", "skipped", "refused", "failed"}[o]
}

// Count counts one request.
func (c *Counters) Count(s Source, o Outcome) {
	c.Requests[s][o].Add()
	[Outcomes]*Counter{&c.Injected, &c.Present, &c.LeftAlone, &c.Skipped, &c.Refused, &c.Failed}[o].Add()
}

// Counter is one number that only grows.
type Counter struct{ n atomic.Uint64 }

// Add adds one.
func (c *Counter) Add() { c.n.Add(1) }

// Load is the count.
func (c *Counter) Load() uint64 { return c.n.Load() }

// Each calls yield with the name and value of every count that a line of log has
// room for, in a fixed order.
func (c *Counters) Each(yield func(name string, value uint64) bool) {
	for _, e := range []struct {
		name string
		c    *Counter
	}{
		{"containers", &c.Containers}, {"untouched", &c.Untouched}, {"injected", &c.Injected}, {"present", &c.Present},
		{"leftAlone", &c.LeftAlone}, {"skipped", &c.Skipped}, {"refused", &c.Refused}, {"failed", &c.Failed},
		{"audited", &c.Audited}, {"timedOut", &c.TimedOut},
		{"rebinds", &c.Rebinds}, {"hotPlugs", &c.HotPlugs}, {"stagingFailed", &c.StagingFailed},
	} {
		if !yield(e.name, e.c.Load()) {
			return
		}
	}
}
