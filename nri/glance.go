// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/jackfield/jackfield/pkg/telemetry"
)

// glance asks whether a container asks for nothing, on a worker: even looking for
// changes in a directory can hang. It is used again, so that looking allocates
// nothing.
type glance struct {
	p     *Plugin
	core  *core
	pod   *api.PodSandbox
	c     *api.Container
	look  func()    // on the worker
	told  chan bool // of one
	timer *time.Timer
}

func newGlances(p *Plugin) *sync.Pool {
	return &sync.Pool{New: func() any {
		g := &glance{p: p, told: make(chan bool, 1), timer: time.NewTimer(time.Hour)}
		g.timer.Stop()
		g.look = g.run
		return g
	}}
}

func (g *glance) run() {
	nothing := false
	defer func() {
		if r := recover(); r != nil {
			_ = g.p.caught(g.p.podLog(g.pod), r) // whoever waits goes on to the whole look
		}
		g.told <- nothing
	}()
	nothing = g.core.engine.Nothing(g.pod.GetId(), g.pod.GetAnnotations(), g.c.GetEnv())
}

// nothing reports that there is nothing to do for the container. When that cannot
// be told in time, because a directory does not answer, nothing is done for a pod
// that has not asked: Jackfield must not keep such pods from a node.
func (p *Plugin) nothing(ctx context.Context, pod *api.PodSandbox, c *api.Container) bool {
	core := p.core.Load()
	if p.dirs.check(core.cfg.DeviceInfo.CNIDir) != nil {
		// It is known to hang: nobody waits for it. Hooks do not need it.
		return core.engine.Hooks() == nil && !core.engine.MayAsk(pod.GetAnnotations())
	}
	g := p.glances.Get().(*glance)
	g.core, g.pod, g.c = core, pod, c
	if !p.workers.do(g.look) {
		p.glances.Put(g)
		return !core.engine.MayAsk(pod.GetAnnotations())
	}
	limit := p.requestTimeout()
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline))
	}
	// Less than half of the time, so that enough is left for the answer to one that
	// asks.
	nothing, told := g.wait(limit / 3)
	if told {
		g.core, g.pod, g.c = nil, nil, nil
		p.glances.Put(g)
		return nothing
	}
	p.counters.Timeouts[telemetry.CreateContainer].Add()
	if core.engine.MayAsk(pod.GetAnnotations()) {
		return false
	}
	p.later.do(func() {
		p.containerLog(pod, c).Warn("a directory of this host does not answer: the container, whose pod asks for nothing, is created without a look at it")
	})
	return true
}

// wait waits for what the worker tells, and no longer than limit. What is told counts
// whether the time has passed as well or not: a plugin that was held up finds both, and
// would leave out what it has found for the container.
func (g *glance) wait(limit time.Duration) (nothing, told bool) {
	g.timer.Reset(limit)
	defer g.timer.Stop()
	select {
	case nothing = <-g.told:
		return nothing, true
	case <-g.timer.C:
	}
	select {
	case nothing = <-g.told:
		return nothing, true
	default:
		return false, false
	}
}
