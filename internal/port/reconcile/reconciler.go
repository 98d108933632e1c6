// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"sync"
	"time"

	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/port/vswitch"
)

const (
	// settleTime is how long a pass waits after a change, so that changes that come together are one pass.
	settleTime = 100 * time.Millisecond
	// passInterval is the longest time between two passes. Switches have no event for some changes, and a switch that
	// hangs has none. With listTimeout it is less than a minute.
	passInterval = 45 * time.Second
	// respondInterval is the shortest time between two checks whether a vswitch.Responder responds. A check makes work
	// for the switch, and pods that start and stop cause many passes.
	respondInterval = 10 * time.Second
	// retryTime is the time after which a pass with failures is repeated.
	retryTime = 5 * time.Second
	// orphanTime is how long a port must be without record and sandbox before it is removed. It is longer
	// than any ADD or DEL of which the record is in a directory that Options does not name.
	orphanTime  = time.Minute
	listTimeout = 10 * time.Second
	// changeTimeout bounds the change of one port. It is long, because a switch that has to make many ports
	// takes long for each, and a port that comes too late is removed again, which is more work for the switch.
	changeTimeout = time.Minute
	// maxParallel bounds the ports that are created at once. A switch makes ports that it gets together in
	// one pass of its own.
	maxParallel = 32
)

// Options describe what a Reconciler works on.
type Options struct {
	// Switches are the node's switches by name.
	Switches map[string]vswitch.Watcher
	// Host and StateDir are where the CNI plugin's records are.
	Host     hostfs.Root
	StateDir string
	// Sandboxes returns the IDs of the sandboxes that the runtime knows. Until the runtime has reported them,
	// known is false, and only ports of containers that no runtime reports are changed.
	Sandboxes func() (ids map[string]bool, known bool)
	// Report is called after each pass, once for each action. Of failures it gets those that the pass before did
	// not have. It is called from one goroutine for each switch, and may be nil.
	Report func(Event)
}

// Action says what was done.
type Action string

const (
	Recreated Action = "recreated" // a port that was missing
	Changed   Action = "changed"   // a port that differed
	Removed   Action = "removed"   // a port whose sandbox is gone
	Failed    Action = "failed"    // Err says why
)

// Event is what a pass did about ports of a switch, or failed to do.
type Event struct {
	Switch string
	Action Action
	// Changes are sorted by the ports' names; there is at least one.
	Changes []Change
}

// Change is an action on one port. Port is zero for a failure of the whole switch or of the records.
type Change struct {
	Port vswitch.Port
	Err  error
}

// Reconciler keeps the ports of a node's switches.
type Reconciler struct {
	options  Options
	switches map[string]*switchState
}

// New returns a Reconciler. Run makes it work.
func New(o Options) *Reconciler {
	if o.Report == nil {
		o.Report = func(Event) {}
	}
	r := &Reconciler{options: o, switches: map[string]*switchState{}}
	for name, driver := range o.Switches {
		r.switches[name] = &switchState{name: name, driver: driver, options: &r.options, wake: make(chan struct{}, 1),
			known: map[attachment]knownPort{}, orphans: map[attachment]time.Time{}}
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

// Trigger starts a pass over all switches. The caller calls it whenever the sandboxes change. It does not wait.
func (r *Reconciler) Trigger() {
	for _, s := range r.switches {
		s.trigger()
	}
}

// Status returns the state of each switch after its last pass, without what the configuration says of the switch.
func (r *Reconciler) Status() map[string]vswitch.Status {
	all := map[string]vswitch.Status{}
	for name, s := range r.switches {
		s.mu.Lock()
		all[name] = s.status
		s.mu.Unlock()
	}
	return all
}
