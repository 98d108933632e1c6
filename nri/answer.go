// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync/atomic"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"
	"github.com/sirupsen/logrus"

	"github.com/jackfield/jackfield/pkg/telemetry"
)

// verdict is what the runtime is told of a container, by whoever says it first:
// the goroutine that did the work, or the handler that could not wait for it. What
// is logged, counted and kept is then the same as what the runtime was told.
type verdict struct{ said atomic.Bool }

// say claims the verdict.
func (v *verdict) say() bool { return v.said.CompareAndSwap(false, true) }

// answered does createContainer on a goroutine of its own and answers within the
// budget: a file system that hangs holds that goroutine, never the runtime.
func (p *Plugin) answered(ctx context.Context, pod *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, error) {
	ctx, cancel := p.budget(ctx)
	defer cancel()
	type result struct {
		adjust *api.ContainerAdjustment
		err    error
	}
	last := &verdict{}
	done := make(chan result, 1)
	accepted := p.workers.do(func() {
		defer func() {
			if r := recover(); r != nil {
				err := p.caught(p.podLog(pod), r)
				p.refusedBy(last, pod, c, err)
				done <- result{err: err}
			}
		}()
		adjust, err := p.createContainer(ctx, pod, c, last)
		done <- result{adjust, err}
	})
	if !accepted {
		return nil, p.giveUp(pod, c, errHanging())
	}
	select {
	case r := <-done:
		if r.err == nil || !(ctx.Err() != nil && last.say()) {
			return r.adjust, r.err
		}
	case <-ctx.Done():
		if !last.say() {
			r := <-done
			return r.adjust, r.err
		}
	}
	which := p.dirs.hanging()
	if which != "" {
		which = " (" + which + ")"
	}
	return nil, p.giveUp(pod, c, fmt.Errorf("jackfield: container %q: given up before the runtime's deadline, a file system or socket of this host does not answer%s: %w",
		nameOf(pod, c), which, errdefs.ErrUnavailable))
}

// errHanging is for work that no worker is left for.
func errHanging() error {
	return fmt.Errorf("jackfield: %d earlier requests still hang on this host's file systems: %w", maxHanging, errdefs.ErrUnavailable)
}

// caught counts and logs a defect, r being what recover gave, and is the error that
// whoever waits is told.
func (p *Plugin) caught(log *logrus.Entry, r any) error {
	p.counters.Panics.Add()
	log.WithField("panic", r).Error(string(debug.Stack()))
	return fmt.Errorf("jackfield: internal error, see the plugin's log: %v: %w", r, errdefs.ErrInternal)
}

// giveUp is a refusal for want of an answer.
func (p *Plugin) giveUp(pod *api.PodSandbox, c *api.Container, err error) error {
	p.counters.TimedOut.Add()
	p.counters.Timeouts[telemetry.CreateContainer].Add()
	p.refused(pod, c, err)
	return err
}

// refusedBy is refused, unless the runtime was told something else already.
func (p *Plugin) refusedBy(last *verdict, pod *api.PodSandbox, c *api.Container, err error) {
	if last.say() {
		p.refused(pod, c, err)
	}
}
