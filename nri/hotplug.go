// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
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
	p    *Plugin
	kick chan struct{}
	quit chan struct{}
	done chan struct{}

	mu      sync.Mutex
	running map[string]map[string]*resolve.Request // by sandbox and container
	dirty   map[string]bool                        // sandboxes
	dir     string
	watcher *pathwatch.Watcher
	asked   int // calls of watch
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
		running: make(map[string]map[string]*resolve.Request), dirty: make(map[string]bool)}
	go h.run()
	return h
}

// watch watches the directory of a configuration, where sockets can be added to
// running containers at all.
func (h *hotplug) watch(c *core, w waits) {
	h.mu.Lock()
	h.asked++
	turn := h.asked
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
	w, err := pathwatch.New(h.p.opts.Host, pathwatch.Options{Failed: h.failed})
	if err == nil {
		_, err = w.Add(dir, "", pathwatch.Written|pathwatch.Removed, h.changed)
	}
	if err != nil {
		h.failed(err)
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

func (h *hotplug) failed(err error) {
	h.p.log.WithError(err).Warn("networks that come later may not be noticed")
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
		select {
		case h.kick <- struct{}{}:
		default:
		}
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

// look brings one container up to what its sandbox's networks are now.
func (h *hotplug) look(req *resolve.Request) {
	log := h.p.log.WithFields(logrus.Fields{"pod": req.Namespace + "/" + req.Pod, "sandbox": req.SandboxID,
		"container": req.Container, "containerID": req.ContainerID})
	defer func() {
		if r := recover(); r != nil {
			_ = h.p.caught(log, r) // nobody waits
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), hotplugBudget)
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
		log.WithError(err).Warn("networks of the running container: left as they are")
		return
	}
	failed := false
	for _, it := range plan.Items {
		if it.Err != nil {
			failed = true
			log.WithError(it.Err).WithField("request", it.Request).Warn("cannot be given to the running container")
		}
	}
	if failed && core.store.Loses(*plan.Staging) {
		// What cannot be read now may be what the container has.
		log.Warn("networks of the running container: left as they are until all of its device-info can be read")
		return
	}
	change, err := core.store.Update(*plan.Staging)
	if err != nil && !errdefs.IsNotFound(err) { // gone meanwhile
		h.p.counters.StagingFailed.Add()
		log.WithError(err).Warn("networks of the running container")
	}
	if change.Empty() {
		return
	}
	h.p.counters.HotPlugs.Add()
	log.WithFields(logrus.Fields{"added": change.Added, "removed": change.Removed}).Info("networks of the running container changed")
}

func (h *hotplug) close() {
	close(h.quit)
	<-h.done
	h.mu.Lock()
	w := h.watcher
	h.watcher, h.dir = nil, ""
	h.asked++
	h.mu.Unlock()
	if w != nil {
		_ = w.Close()
	}
}
