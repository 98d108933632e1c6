// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Counters count the plugin's work.
type Counters struct {
	Containers atomic.Uint64 // containers whose creation was reported
	Untouched  atomic.Uint64 // of these: containers without a request
	Audited    atomic.Uint64 // requests that mode enforce would have denied
	TimedOut   atomic.Uint64 // containers refused because the runtime's deadline was near

	// RefusedBy are the refusals by the rule that came closest.
	RefusedBy RuleCounter

	Connections   atomic.Uint64 // registrations with a runtime
	Rebinds       atomic.Uint64 // sockets bound again in a running container's staging directory
	HotPlugs      atomic.Uint64 // running containers whose networks changed
	StagingFailed atomic.Uint64 // failures to watch or update the sockets and networks of running containers
	CleanupFailed atomic.Uint64 // removals that left something behind
	StatusFailed  atomic.Uint64 // container records that could not be written or read
	Panics        atomic.Uint64 // panics that were recovered
	AuditLines    atomic.Uint64 // lines written to the audit file
	AuditDropped  atomic.Uint64 // lines dropped because the audit file was too slow
	AuditFailed   atomic.Uint64 // lines lost because the audit file could not be written
	LogDropped    atomic.Uint64 // log lines dropped because standard error was too slow

	requests  map[request]*atomic.Uint64
	timeouts  *prometheus.CounterVec
	duration  *prometheus.HistogramVec
	observers map[Handler]prometheus.Observer // the series of duration
}

// request is the labels of a request.
type request struct {
	source  Source
	outcome Outcome
}

// NewCounters returns counters that are all 0. Every series exists from the start, so that the
// first refusal is an increase and not a new series.
func NewCounters() *Counters {
	ofHandler := []string{"handler"}
	c := &Counters{
		requests:  make(map[request]*atomic.Uint64),
		observers: make(map[Handler]prometheus.Observer),
		timeouts: prometheus.NewCounterVec(prometheus.CounterOpts{Name: handlerTimeouts.Name, Help: handlerTimeouts.Help},
			ofHandler),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: handlerDuration.Name, Help: handlerDuration.Help,
			// From a container without a request to the runtime's default deadline.
			Buckets: []float64{1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, .01, .05, .25, 1, 2},
		}, ofHandler),
	}
	for _, h := range handlers {
		c.observers[h] = c.duration.WithLabelValues(string(h))
		c.timeouts.WithLabelValues(string(h))
	}
	for _, s := range sources {
		for _, o := range outcomes {
			if s != SourceContainer || o == Failed || o == Refused {
				c.requests[request{s, o}] = new(atomic.Uint64)
			}
		}
	}
	return c
}

// Observe counts one call of the runtime, which took d.
func (c *Counters) Observe(h Handler, d time.Duration) { c.observers[h].Observe(d.Seconds()) }

// CountTimeout counts a call of the runtime that was answered before its work was done.
func (c *Counters) CountTimeout(h Handler) { c.timeouts.WithLabelValues(string(h)).Inc() }

// CountRequest counts one request. A request with unknown labels is counted as one that failed.
func (c *Counters) CountRequest(s Source, o Outcome) {
	one := c.requests[request{s, o}]
	if one == nil {
		one = c.requests[request{SourceContainer, Failed}]
	}
	one.Add(1)
}

// requestValues returns the counters of requests, by source and outcome.
func (c *Counters) requestValues() (all []value) {
	for r, n := range c.requests {
		all = append(all, one(n.Load(), string(r.source), string(r.outcome))...)
	}
	return all
}

// Requests returns how many requests of all sources had the outcome.
func (c *Counters) Requests(o Outcome) uint64 {
	n := uint64(0)
	for _, s := range sources {
		if one := c.requests[request{s, o}]; one != nil {
			n += one.Load()
		}
	}
	return n
}

// Totals are the counts that the plugin logs when it ends, by name.
func (c *Counters) Totals() map[string]any {
	return map[string]any{
		"containers": c.Containers.Load(), "untouched": c.Untouched.Load(), "audited": c.Audited.Load(), "timedOut": c.TimedOut.Load(),
		"injected": c.Requests(Injected), "present": c.Requests(Present), "unmanaged": c.Requests(Unmanaged),
		"skipped": c.Requests(Skipped), "refused": c.Requests(Refused), "failed": c.Requests(Failed),
		"rebinds": c.Rebinds.Load(), "hotPlugs": c.HotPlugs.Load(), "stagingFailed": c.StagingFailed.Load(),
	}
}

// maxRules bounds the time series of a RuleCounter: every configuration can have other
// rules, and a count stays for as long as the process.
const maxRules = 200

// otherRules is the name under which rules beyond maxRules are counted.
const otherRules = "(others)"

// RuleCounter counts by the name of a rule. The zero value is ready.
type RuleCounter struct {
	mu     sync.Mutex
	counts map[string]uint64
}

// Add adds one to the rule's count.
func (r *RuleCounter) Add(rule string) {
	rule = strings.ToValidUTF8(rule, "�")
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts == nil {
		r.counts = make(map[string]uint64)
	}
	if _, known := r.counts[rule]; !known && len(r.counts) >= maxRules {
		rule = otherRules
	}
	r.counts[rule]++
}

// values returns the counters, by the name of the policy rule.
func (r *RuleCounter) values() (all []value) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for rule, n := range r.counts {
		all = append(all, one(n, rule)...)
	}
	return all
}

// Source is where a request comes from. Its values are the values of a metric's label.
type Source string

// SourceContainer is for faults that belong to no single request, such as an annotation that cannot be
// parsed, a limit, or the injections of another plugin. The other sources are the kinds of requests.
const SourceContainer Source = "container"

var sources = [...]Source{"cdi", "network", "resource", "claim", "socket", "hook", "device-injector", SourceContainer}

// Outcome is the outcome of a request. Its values are the values of a metric's label.
type Outcome string

// The outcomes.
const (
	Injected  Outcome = "injected"
	Present   Outcome = "present"
	Unmanaged Outcome = "unmanaged"
	Skipped   Outcome = "skipped"
	Refused   Outcome = "refused"
	Failed    Outcome = "failed"
)

// Handler is one of the runtime's calls. The values are the names of the NRI protocol.
type Handler string

// The handlers.
const (
	Configure                   Handler = "Configure"
	Synchronize                 Handler = "Synchronize"
	RunPodSandbox               Handler = "RunPodSandbox"
	CreateContainer             Handler = "CreateContainer"
	ValidateContainerAdjustment Handler = "ValidateContainerAdjustment"
	StartContainer              Handler = "StartContainer"
	StopContainer               Handler = "StopContainer"
	RemoveContainer             Handler = "RemoveContainer"
	RemovePodSandbox            Handler = "RemovePodSandbox"
)

var (
	outcomes = [...]Outcome{Injected, Present, Unmanaged, Skipped, Refused, Failed}
	handlers = [...]Handler{Configure, Synchronize, RunPodSandbox, CreateContainer, ValidateContainerAdjustment,
		StartContainer, StopContainer, RemoveContainer, RemovePodSandbox}
)
