// SPDX-License-Identifier: Apache-2.0

package nritest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/log"
)

// events learns from the adaptation's metrics which plugins are connected: the adaptation has no
// other interface for that.
type events struct {
	mu      sync.Mutex
	synced  []string        // synchronized, not yet counted
	ready   map[string]bool // counted
	count   int
	changed chan struct{}
}

func newEvents() *events {
	return &events{ready: map[string]bool{}, changed: make(chan struct{})}
}

// RecordPluginInvocation implements adaptation.Metrics.
func (e *events) RecordPluginInvocation(plugin, operation string, err error) {
	if operation != "Synchronize" || err != nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.synced = append(e.synced, plugin)
}

// RecordPluginLatency implements adaptation.Metrics.
func (e *events) RecordPluginLatency(string, string, time.Duration) {}

// RecordPluginAdjustments implements adaptation.Metrics.
func (e *events) RecordPluginAdjustments(string, string, *adaptation.ContainerAdjustment, int, int) {
}

// UpdatePluginCount implements adaptation.Metrics. It is called after a
// plugin was added, and so after the plugin's Synchronize.
func (e *events) UpdatePluginCount(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n == e.count && len(e.synced) == 0 {
		return // the ordinary end of a request
	}
	e.count = n
	for _, name := range e.synced {
		e.ready[name] = true
	}
	e.synced = nil
	close(e.changed)
	e.changed = make(chan struct{})
}

func (e *events) reset() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.synced, e.count = nil, 0
	clear(e.ready)
}

func (e *events) gone(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.ready, name)
}

func (e *events) plugins() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.count
}

func (e *events) waitPlugin(ctx context.Context, name string) error {
	for {
		e.mu.Lock()
		ready, changed := e.ready[name], e.changed
		e.mu.Unlock()
		if ready {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for NRI plugin %q: %w", name, context.Cause(ctx))
		}
	}
}

// quietLog keeps the adaptation's several lines a request out of the output. It
// logs through a package variable, which plugins that run in this process share.
var quietLog = sync.OnceFunc(func() { log.Set(discard{}) })

type discard struct{}

func (discard) Debugf(context.Context, string, ...any) {}
func (discard) Infof(context.Context, string, ...any)  {}
func (discard) Warnf(context.Context, string, ...any)  {}
func (discard) Errorf(context.Context, string, ...any) {}
