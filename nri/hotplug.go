// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"
	"github.com/sirupsen/logrus"

	"github.com/jackfield/jackfield/pkg/deviceinfo"
	"github.com/jackfield/jackfield/pkg/pathwatch"
	"github.com/jackfield/jackfield/pkg/resolve"
	"github.com/jackfield/jackfield/pkg/staging"
)

// hotplug gives running containers the networks that come while they run, and takes
// away those that go: it watches the directory of device-info files. The runtime has no
// part in it, and waits for nothing here.
type hotplug struct {
	p      *Plugin
	kick   chan struct{}
	quit   chan struct{}
	done   chan struct{}
	budget atomic.Int64 // hotplugBudget, in nanoseconds; tests shorten it

	mu      sync.Mutex
	running map[string]map[string]*resolve.Request // by sandbox and container
	dirty   map[string]bool                        // sandboxes
	retries map[string]*passRetry                  // by container, of those whose last pass was incomplete
	dir     string                                 // that is watched; "" for none
	watcher *pathwatch.Watcher
	asked   int         // calls of watch
	rewatch *time.Timer // watches again after a failure; nil for none
	backoff backoff     // of rewatch
	closed  bool
}

// passRetry repeats the pass over one container that could not check or do everything.
type passRetry struct {
	backoff
	timer  *time.Timer
	logged string // what the log has of it
}

const (
	// hotplugSettle is how long after a change its file is read: a CNI plugin that
	// writes one file often writes another.
	hotplugSettle = 5 * time.Millisecond
	// hotplugBudget bounds the look at one container, which may ask the kubelet.
	hotplugBudget = 10 * time.Second
)

func newHotplug(p *Plugin) *hotplug {
	h := &hotplug{p: p, kick: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{}),
		running: make(map[string]map[string]*resolve.Request), dirty: make(map[string]bool), retries: make(map[string]*passRetry)}
	h.budget.Store(int64(hotplugBudget))
	go h.run()
	return h
}

// watch watches the directory of a configuration, where sockets can be added to
// running containers at all.
func (h *hotplug) watch(c *core, w waits) {
	h.mu.Lock()
	h.asked++
	turn := h.asked
	if h.rewatch != nil {
		h.rewatch.Stop()
		h.rewatch = nil
	}
	h.backoff.reset()
	h.mu.Unlock()
	// The directory may hang: then it is watched as soon as it answers.
	w.do(func() { h.watchAs(c, turn) })
}

// watchAs is watch, unless it is not its turn any more.
func (h *hotplug) watchAs(c *core, turn int) {
	dir := ""
	if c.store != nil && c.staged {
		dir = h.p.opts.Host.Canonical(c.cfg.DeviceInfo.CNIDir)
	}
	h.mu.Lock()
	old := h.watcher
	if dir == h.dir || turn != h.asked {
		h.mu.Unlock()
		return
	}
	h.dir, h.watcher = dir, nil
	h.mu.Unlock()
	if old != nil {
		_ = old.Close() // what it watched is of no interest any more
	}
	if dir == "" {
		return
	}
	failed := func(err error) { h.watchFailed(c, turn, err) }
	w, err := pathwatch.New(h.p.opts.Host, pathwatch.Options{Failed: failed})
	if err == nil {
		_, err = w.Add(dir, "", pathwatch.Written|pathwatch.Removed, h.changed)
	}
	if err != nil {
		failed(err)
	}
	h.mu.Lock()
	if turn == h.asked {
		h.watcher, w = w, nil
	}
	h.mu.Unlock()
	if w != nil {
		_ = w.Close()
	}
}

// watchFailed has the directory watched again after a while, with what changes
// meanwhile. The log has the first of several failures.
func (h *hotplug) watchFailed(c *core, turn int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if turn != h.asked || h.rewatch != nil {
		return
	}
	first := h.backoff == backoff{}
	wait := h.backoff.next()
	h.rewatch = time.AfterFunc(wait, func() {
		h.mu.Lock()
		if turn != h.asked {
			h.mu.Unlock()
			return
		}
		h.dir, h.rewatch = "", nil
		h.mu.Unlock()
		h.watchAs(c, turn)
		h.mu.Lock()
		watched := turn == h.asked && h.rewatch == nil
		if watched {
			h.backoff.reset()
		}
		h.mu.Unlock()
		if watched {
			h.p.log.Info("networks that are added to running containers are noticed again")
		}
		h.changed("")
	})
	h.p.counters.StagingFailed.Add()
	if first {
		h.p.log.WithError(err).WithField("retry", wait.String()).Warn("networks that are added to running containers may not be noticed until the watch succeeds")
	}
}

// add takes note of a container that gets staging.
func (h *hotplug) add(req *resolve.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.note(req)
}

// note is add. The lock is held.
func (h *hotplug) note(req *resolve.Request) {
	if h.running[req.SandboxID] == nil {
		h.running[req.SandboxID] = make(map[string]*resolve.Request)
	}
	h.running[req.SandboxID][req.ContainerID] = req
}

func (h *hotplug) remove(sandboxID, containerID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopRetry(containerID)
	if delete(h.running[sandboxID], containerID); len(h.running[sandboxID]) == 0 {
		delete(h.running, sandboxID)
	}
}

// runs tells whether a container has not ended.
func (h *hotplug) runs(req *resolve.Request) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.running[req.SandboxID][req.ContainerID] != nil
}

func (h *hotplug) removeSandbox(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for containerID := range h.running[id] {
		h.stopRetry(containerID)
	}
	delete(h.running, id)
}

// synchronize takes up the containers that live, and looks what came and went while
// nobody looked.
func (h *hotplug) synchronize(store *staging.Store, pods []*api.PodSandbox, containers []*api.Container) {
	byID := make(map[string]*api.PodSandbox, len(pods))
	for _, pod := range pods {
		byID[pod.GetId()] = pod
	}
	held := store.Held()
	var running []*resolve.Request
	for _, c := range containers {
		pod := byID[c.GetPodSandboxId()]
		if _, ok := slices.BinarySearch(held, c.GetId()); !ok || pod == nil {
			continue
		}
		running = append(running, request(h.p.runtimeName(), pod, c))
	}
	// In one step: one that is not there has ended.
	h.mu.Lock()
	for containerID := range h.retries {
		h.stopRetry(containerID)
	}
	clear(h.running)
	for _, req := range running {
		h.note(req)
	}
	h.mu.Unlock()
	h.changed("")
}

// changed takes note of the sandbox that a file is of; "" stands for all.
func (h *hotplug) changed(name string) {
	h.mu.Lock()
	for id := range h.running {
		if name == "" {
			h.dirty[id] = true
		} else if strings.Contains(name, id) {
			if _, _, ok := deviceinfo.MatchCNIFileName(name, id); ok {
				h.dirty[id] = true
			}
		}
	}
	work := len(h.dirty) > 0
	h.mu.Unlock()
	if work {
		h.wake()
	}
}

func (h *hotplug) run() {
	defer close(h.done)
	for {
		select {
		case <-h.quit:
			return
		case <-h.kick:
		}
		select {
		case <-h.quit:
			return
		case <-time.After(hotplugSettle):
		}
		for _, req := range h.take() {
			h.look(req)
		}
	}
}

// take gives the containers to look at, in order.
func (h *hotplug) take() []*resolve.Request {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []*resolve.Request
	for _, id := range slices.Sorted(maps.Keys(h.dirty)) {
		for _, cid := range slices.Sorted(maps.Keys(h.running[id])) {
			out = append(out, h.running[id][cid])
		}
	}
	clear(h.dirty)
	return out
}

// look brings one container up to what its sandbox's networks are now. A pass that could
// not check or do everything is repeated.
func (h *hotplug) look(req *resolve.Request) {
	log := h.p.log.WithFields(logrus.Fields{"pod": req.Namespace + "/" + req.Pod, "sandbox": req.SandboxID,
		"container": req.Container, "containerID": req.ContainerID})
	defer func() {
		if r := recover(); r != nil {
			_ = h.p.caught(log, r) // nobody waits
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(h.budget.Load()))
	defer cancel()
	core := h.p.core.Load()
	if core.store == nil {
		return // it is looked at when the state directory is there
	}
	now := *req
	now.Holds = func(root, rel string) bool { return core.store.Holds(req.ContainerID, root, rel) }
	plan, err := core.engine.Running(ctx, &now)
	if !h.runs(req) {
		// It ended meanwhile, and has nothing of the pod's limits.
		h.p.ledger.Drop(req.SandboxID, req.ContainerID)
		return
	}
	if err != nil {
		h.p.counters.StagingFailed.Add()
		h.retry(log, req, fmt.Errorf("the container keeps what it has: %w", err))
		return
	}
	var failed, transient []error
	for _, it := range plan.Items {
		if it.Err == nil {
			continue
		}
		err := fmt.Errorf("%s: %w", it.Request, it.Err)
		failed = append(failed, err)
		if mayPass(it.Err) {
			transient = append(transient, err)
		}
	}
	if all := slices.Concat(failed, plan.Unchecked); len(all) > 0 && core.store.Loses(*plan.Staging) {
		// What cannot be read now may be what the container has.
		h.retry(log, req, fmt.Errorf("the container keeps what it has until all of its networks can be checked: %w", firstOf(all)))
		return
	}
	change, err := core.store.Update(*plan.Staging)
	if errdefs.IsNotFound(err) {
		return // gone meanwhile
	}
	if err != nil {
		h.p.counters.StagingFailed.Add()
		transient = append(transient, err)
	}
	switch {
	case len(transient) > 0:
		h.retry(log, req, firstOf(transient))
	case len(failed) > 0:
		h.report(log, req, firstOf(failed))
	default:
		h.complete(log, req)
	}
	if change.Empty() {
		return
	}
	h.p.counters.HotPlugs.Add()
	log.WithFields(logrus.Fields{"added": change.Added, "removed": change.Removed}).Info("networks of the running container changed")
}

// mayPass reports whether an error may be over without any change to the container's
// device-info, of which there would be an event.
func mayPass(err error) bool {
	return !errdefs.IsPermissionDenied(err) && !errdefs.IsInvalidArgument(err) && !errdefs.IsConflict(err) && !errdefs.IsNotFound(err)
}

// firstOf is one error of several, with how many more there are.
func firstOf(errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	return fmt.Errorf("%w (and %d more)", errs[0], len(errs)-1)
}

// retry repeats the pass over a container after a while, and reports why.
func (h *hotplug) retry(log *logrus.Entry, req *resolve.Request, err error) {
	h.report(log, req, err)
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.retries[req.ContainerID]
	if r == nil || h.closed {
		return // it ended meanwhile
	}
	if r.timer != nil {
		r.timer.Stop()
	}
	r.timer = time.AfterFunc(r.next(), func() { h.mark(req.SandboxID) })
}

// report logs why a pass over a container was incomplete, unless the log has it already.
func (h *hotplug) report(log *logrus.Entry, req *resolve.Request, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.running[req.SandboxID][req.ContainerID] == nil {
		return
	}
	r := h.retries[req.ContainerID]
	if r == nil {
		r = &passRetry{}
		h.retries[req.ContainerID] = r
	}
	if text := err.Error(); text != r.logged {
		r.logged = text
		log.WithError(err).Warn("not all networks of the running container are up to date")
	}
}

// complete notes that a pass checked and did everything.
func (h *hotplug) complete(log *logrus.Entry, req *resolve.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.retries[req.ContainerID] != nil {
		h.stopRetry(req.ContainerID)
		log.Info("the networks of the running container are up to date again")
	}
}

// stopRetry forgets the retry of a container. The lock is held.
func (h *hotplug) stopRetry(containerID string) {
	if r := h.retries[containerID]; r != nil && r.timer != nil {
		r.timer.Stop()
	}
	delete(h.retries, containerID)
}

// mark has one sandbox's containers looked at.
func (h *hotplug) mark(sandboxID string) {
	h.mu.Lock()
	work := h.running[sandboxID] != nil
	if work {
		h.dirty[sandboxID] = true
	}
	h.mu.Unlock()
	if work {
		h.wake()
	}
}

// wake has run take what is dirty.
func (h *hotplug) wake() {
	select {
	case h.kick <- struct{}{}:
	default:
	}
}

func (h *hotplug) close() {
	close(h.quit)
	<-h.done
	h.mu.Lock()
	w := h.watcher
	h.watcher, h.dir, h.closed = nil, "", true
	h.asked++
	if h.rewatch != nil {
		h.rewatch.Stop()
	}
	for containerID := range h.retries {
		h.stopRetry(containerID)
	}
	h.mu.Unlock()
	if w != nil {
		_ = w.Close()
	}
}
