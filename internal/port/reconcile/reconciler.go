// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"sync"
	"time"

	"github.com/jackfield/jackfield/internal/base/retry"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/port/vswitch"
)

const (
	// settleTime is the delay between a change and its pass, so that simultaneous changes share one
	// pass.
	settleTime = 100 * time.Millisecond
	// passInterval is the longest time between two passes. Switches have no event for some changes,
	// and a hanging switch has none. Together with listTimeout it is less than a minute.
	passInterval = 45 * time.Second
	// respondInterval is the shortest time between two checks of a vswitch.Responder. A check
	// causes work for the switch, and pods that start and stop cause many passes.
	respondInterval = 10 * time.Second
	// firstRetry is the time after which the pass of a trigger is repeated if it had failures. It is
	// short, because a switch that starts answers some time before its bridges exist. The time
	// doubles with each repetition, up to lastRetry.
	firstRetry, lastRetry = 100 * time.Millisecond, 5 * time.Second
	// orphanTime is the time for which a port must lack record and sandbox before it is removed. It
	// exceeds the duration of any ADD or DEL whose record is in a directory that Options does not
	// contain.
	orphanTime  = time.Minute
	listTimeout = 10 * time.Second
	// changeTimeout bounds the change of one port. It is long, because a switch that creates many
	// ports takes long for each, and a port that arrives too late is removed again, which adds to
	// the switch's work.
	changeTimeout = time.Minute
	// maxParallel bounds the number of ports that are created concurrently. A switch processes
	// concurrent requests in one pass of its own.
	maxParallel = 32
)

// Options are the parameters of a Reconciler.
type Options struct {
	// Switches are the node's switches by name.
	Switches map[string]vswitch.Watcher
	// Host and StateDir locate the CNI plugin's records.
	Host     hostfs.Root
	StateDir string
	// Sandboxes returns the IDs of the runtime's sandboxes. Until the runtime has reported them,
	// known is false, and only ports of containers that no runtime reports are changed.
	Sandboxes func() (ids map[string]bool, known bool)
	// Report is called after each pass, once for each action. It receives only failures that the
	// previous pass did not have. It is called from one goroutine for each switch, and can be nil.
	Report func(Event)
}

// Action is the kind of a change.
type Action string

const (
	Recreated Action = "recreated" // the port was missing
	Changed   Action = "changed"   // the port differed from its record
	Removed   Action = "removed"   // the port's sandbox was removed
	Failed    Action = "failed"    // see Err
)

// Event is the result of a pass for ports of one switch.
type Event struct {
	Switch string
	Action Action
	// Changes are sorted by port name and never empty.
	Changes []Change
}

// Change is an action on one port. Port is zero for a failure of the whole switch or of the records.
type Change struct {
	Port vswitch.Port
	Err  error
}

// Reconciler reconciles the ports of a node's switches with their records.
type Reconciler struct {
	options  Options
	switches map[string]*switchState
}

// New returns a Reconciler, which is idle until Run.
func New(o Options) *Reconciler {
	if o.Report == nil {
		o.Report = func(Event) {}
	}
	r := &Reconciler{options: o, switches: map[string]*switchState{}}
	for name, driver := range o.Switches {
		r.switches[name] = &switchState{name: name, driver: driver, options: &r.options, wake: make(chan struct{}, 1),
			known: map[attachment]knownPort{}, orphans: map[attachment]time.Time{},
			retry: retry.Backoff{First: firstRetry, Last: lastRetry}}
	}
	return r
}

// Run watches the switches until ctx ends.
func (r *Reconciler) Run(ctx context.Context) {
	var group sync.WaitGroup
	for _, s := range r.switches {
		group.Go(func() { _ = s.driver.Watch(ctx, s.trigger) })
		group.Go(func() { s.run(ctx) })
	}
	group.Wait()
}

// Trigger starts a pass over all switches and returns immediately. The caller calls it whenever the
// sandboxes change.
func (r *Reconciler) Trigger() {
	for _, s := range r.switches {
		s.trigger()
	}
}

// Status returns the state of each switch after its last pass, without the switch's configuration.
func (r *Reconciler) Status() map[string]vswitch.Status {
	all := map[string]vswitch.Status{}
	for name, s := range r.switches {
		s.mu.Lock()
		all[name] = s.status
		s.mu.Unlock()
	}
	return all
}
