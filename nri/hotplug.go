// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"
	"github.com/sirupsen/logrus"

	"github.com/jackfield/jackfield/internal/base/deadline"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/deliver/staging"
	"github.com/jackfield/jackfield/internal/engine"
	"github.com/jackfield/jackfield/internal/host/watch"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// hotplug updates running containers when networks are added to their pods or removed, and when a
// driver replaces the metadata of their resource claims. It watches the directory of device-info files
// and the directories of the metadata. The runtime does not wait for it.
type hotplug struct {
	p       *Plugin
	wakeUp  func()
	timeout atomic.Int64                  // hotplugTimeout, in nanoseconds; tests shorten it
	watcher atomic.Pointer[watch.Watcher] // nil while nothing is watched
	changes atomic.Uint64                 // grows with each change of device-info files

	mu       sync.Mutex
	dir      string             // the watched directory; "" for none
	endWatch context.CancelFunc // nil for none
}

// runningContainer is what hotplug knows of a container with a staging directory. containerTable.mu
// guards it.
type runningContainer struct {
	req     *engine.Request
	dirty   bool // to be updated
	ended   bool // removed from the table
	updates retryState
	timer   *time.Timer // of the next retry; nil before the first

	// watches are those of the metadata files of its claims, by path. They end with their watcher. Only
	// updateDirty uses them, because a call of a watcher can hang with the file system.
	watches map[string]*watch.Watch
	watcher *watch.Watcher
}

const (
	// hotplugSettle is how long after a change its file is read: a CNI plugin that writes one
	// file often writes another.
	hotplugSettle = 5 * time.Millisecond
	// hotplugTimeout bounds the update of one container, which may query the kubelet.
	hotplugTimeout = 10 * time.Second
	// maxUpdates is how many containers are updated at the same time.
	maxUpdates = 16
)

func newHotplug(p *Plugin) *hotplug {
	h := &hotplug{p: p}
	h.timeout.Store(int64(hotplugTimeout))
	h.wakeUp = p.runWhenWoken(0, h.updateDirty)
	return h
}

// followConfig watches the configured directory of device-info files, where sockets can be added to running
// containers.
func (h *hotplug) followConfig(cfg *config.Config) {
	if h.p.state.isStaged() {
		h.watch(cfg.DeviceInfo.CNIDir)
	}
}

// watch watches dir in place of the directory before; "" stands for none. An unresponsive directory is watched
// as soon as it responds.
func (h *hotplug) watch(dir string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if dir == h.dir {
		return
	}
	if h.endWatch != nil {
		h.endWatch()
	}
	h.dir, h.endWatch = dir, nil
	if dir == "" {
		return
	}
	var ctx context.Context
	ctx, h.endWatch = context.WithCancel(h.p.closing)
	go h.p.repeat(ctx, "networks that are added to running containers may not be noticed until the watch succeeds",
		"networks that are added to running containers are noticed again", func(watched func()) (time.Duration, error) {
			return 0, h.watchUntilFailure(ctx, dir, watched)
		})
}

// watchUntilFailure watches a directory until ctx ends or the watch fails. It calls watched when the watch
// has begun, and has everything updated that changed before.
func (h *hotplug) watchUntilFailure(ctx context.Context, dir string, watched func()) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	w, err := watch.New(h.p.opts.Host, watch.Options{Failed: fail})
	if err != nil {
		return err
	}
	h.watcher.Store(w)
	defer func() {
		h.watcher.Store(nil)
		w.Close()
	}()
	if _, err := w.Add(h.p.opts.Host.Canonical(dir), "", watch.Written|watch.Removed, h.markFileDirty); err != nil {
		return err
	}
	watched()
	h.markAllDirty()
	<-ctx.Done()
	return context.Cause(ctx)
}

// synchronize takes the containers of the store that live, and checks what changed while the plugin
// was not connected.
func (h *hotplug) synchronize(store *staging.Store) {
	ids := store.TrackedContainers()
	table := h.p.containers.containerTable
	table.mu.Lock()
	for _, id := range ids {
		if c := table.containers[id]; c != nil && c.pod != nil && c.running == nil {
			c.running = &runningContainer{req: newRequest(h.p.runtimeName(), c.pod, c.c)}
		}
	}
	table.mu.Unlock()
	h.wakeUp() // for those that ended
	h.markAllDirty()
}

// markFileDirty has the containers of the sandbox that a device-info file belongs to updated; ""
// stands for every file.
func (h *hotplug) markFileDirty(name string) {
	h.changes.Add(1) // before the container table is read
	h.markDirty(func(c *runningContainer) bool {
		_, _, ok := deviceinfo.MatchCNIFileName(name, c.req.SandboxID)
		return ok || name == ""
	})
}

// markAllDirty has all containers updated.
func (h *hotplug) markAllDirty() { h.markFileDirty("") }

// markContainerDirty has one container updated.
func (h *hotplug) markContainerDirty(c *runningContainer) {
	h.markDirty(func(other *runningContainer) bool { return other == c })
}

// markDirty has the containers updated for which match returns true.
func (h *hotplug) markDirty(match func(*runningContainer) bool) {
	table := h.p.containers.containerTable
	table.mu.Lock()
	defer table.mu.Unlock()
	for _, c := range table.containers {
		if c.running != nil && match(c.running) {
			c.running.dirty = true
			h.wakeUp()
		}
	}
}

func (h *hotplug) updateDirty() {
	deadline.Sleep(h.p.closing, hotplugSettle)
	dirty, ended := h.p.containers.takeRunning()
	for _, c := range ended {
		for _, watch := range c.watches {
			watch.Stop()
		}
	}
	updateAll(dirty, func(c *container) {
		if h.p.closing.Err() == nil {
			h.updateContainer(c.running, c.pod, h.p.containerLog(c.pod, c.c))
		}
	})
}

// updateAll updates several containers at a time: each may wait for a kubelet that hangs.
func updateAll(dirty []*container, update func(*container)) {
	var updates sync.WaitGroup
	free := make(chan struct{}, maxUpdates)
	for _, c := range dirty {
		free <- struct{}{}
		updates.Go(func() {
			defer func() { <-free }()
			update(c)
		})
	}
	updates.Wait()
}

// takeRunning returns the containers to update, in order, and those that have ended.
func (t *containerTable) takeRunning() (dirty []*container, ended []*runningContainer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.containers {
		if c.running != nil && c.running.dirty {
			c.running.dirty = false
			dirty = append(dirty, c)
		}
	}
	slices.SortFunc(dirty, func(a, b *container) int {
		return cmp.Or(cmp.Compare(a.pod.GetId(), b.pod.GetId()), cmp.Compare(a.c.GetId(), b.c.GetId()))
	})
	ended, t.ended = t.ended, nil
	return dirty, ended
}

// hasEnded reports whether a container was removed from the table.
func (t *containerTable) hasEnded(c *runningContainer) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return c.ended
}

// updateContainer gives one container what its sandbox's networks are now. An incomplete update is
// repeated, and removes nothing.
func (h *hotplug) updateContainer(c *runningContainer, pod *api.PodSandbox, log *logrus.Entry) {
	defer h.p.recoverPanic(new(error), pod)
	current, store := h.p.config.core.Load(), h.p.state.store.Load()
	watchErr := h.watchMetadata(c, current)
	plan, err := h.resolveAgain(c.req, current, store)
	if h.p.containers.hasEnded(c) {
		// It ended meanwhile and no longer counts for the pod's limits.
		h.p.containers.ledger.Drop(c.req.SandboxID, c.req.ContainerID)
		return
	}
	if err != nil {
		h.p.counters.StagingFailed.Add(1)
		h.reportIncomplete(log, c, true, fmt.Errorf("the container keeps what it has: %w", err))
		return
	}
	failed, transient := skippedRequests(plan)
	if watchErr != nil {
		failed, transient = append(failed, watchErr), true
	}
	if all := slices.Concat(failed, plan.Unchecked); len(all) > 0 && store.UpdateRemoves(*plan.Staging) {
		// The container may have what cannot be read now.
		h.reportIncomplete(log, c, true, fmt.Errorf("the container keeps what it has until all of its networks can be checked: %w", firstOf(all)))
		return
	}
	change, err := store.Update(*plan.Staging)
	if errdefs.IsNotFound(err) {
		return // it was removed meanwhile
	}
	if err != nil {
		h.p.counters.StagingFailed.Add(1)
		failed, transient = append(failed, err), true
	}
	if len(plan.Unchecked) > 0 {
		// A source that could not be read may have more. No event comes when it can be read again.
		failed, transient = append(failed, plan.Unchecked...), true
	}
	if len(failed) > 0 {
		h.reportIncomplete(log, c, transient, firstOf(failed))
	} else {
		h.reportComplete(log, c)
	}
	if change.Empty() {
		return
	}
	h.p.counters.HotPlugs.Add(1)
	log.WithFields(logrus.Fields{"added": change.Added, "removed": change.Removed}).Info("networks or claims of the running container changed")
}

// resolveAgain resolves the requests of a container with what it has now.
func (h *hotplug) resolveAgain(created *engine.Request, current *core, store *staging.Store) (*engine.Plan, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(h.timeout.Load()))
	defer cancel()
	req := *created
	req.View = func() []byte { return engine.ReadView(h.p.opts.Host, current.cfg.StateDir, req.ContainerID) }
	req.HasSocket = func(root, rel string) bool { return store.HasSocket(req.ContainerID, root, rel) }
	return current.engine.ResolveRunning(ctx, &req)
}

// skippedRequests returns why requests of a plan were skipped, and whether one of the reasons is transient.
func skippedRequests(plan *engine.Plan) (failed []error, transient bool) {
	for _, it := range plan.Items {
		if it.Outcome == engine.Skipped {
			failed = append(failed, fmt.Errorf("%s: %w", it.Request, it.Err))
			transient = transient || isTransient(it.Err)
		}
	}
	return failed, transient
}

// isTransient reports whether an error can go away without a change of the container's
// device-info, for which there would be an event.
func isTransient(err error) bool {
	return !errdefs.IsPermissionDenied(err) && !errdefs.IsInvalidArgument(err) && !errdefs.IsConflict(err) && !errdefs.IsNotFound(err)
}

// firstOf returns the first of several errors, with how many more there are.
func firstOf(errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	return fmt.Errorf("%w (and %d more)", errs[0], len(errs)-1)
}

// reportIncomplete logs why an update was incomplete, unless it is logged already. A transient failure
// has the update repeated after a while.
func (h *hotplug) reportIncomplete(log *logrus.Entry, c *runningContainer, transient bool, err error) {
	h.p.containers.mu.Lock()
	defer h.p.containers.mu.Unlock()
	if c.ended {
		return
	}
	wait, isNew := c.updates.recordFailure(err)
	if isNew {
		log.WithError(err).Warn("not all networks of the running container are up to date")
	}
	if transient {
		if c.timer != nil {
			c.timer.Stop()
		}
		c.timer = time.AfterFunc(wait, func() { h.markContainerDirty(c) })
	}
}

// reportComplete notes a complete update.
func (h *hotplug) reportComplete(log *logrus.Entry, c *runningContainer) {
	h.p.containers.mu.Lock()
	defer h.p.containers.mu.Unlock()
	if c.updates.recordSuccess() {
		log.Info("the networks of the running container are up to date again")
	}
}

// A driver of resource claims replaces its metadata files by rename. The container has the old file
// mounted and never sees the new one, so the plugin watches the files and rewrites devices.json.

// watchMetadata watches the metadata files of a container's claims.
func (h *hotplug) watchMetadata(c *runningContainer, current *core) (err error) {
	w := h.watcher.Load()
	if w != c.watcher {
		c.watcher, c.watches = w, make(map[string]*watch.Watch)
	}
	plugins := current.cfg.Kubelet.PluginsDir
	if w == nil || !c.req.HasDeviceMetadata() {
		return nil
	}
	if err := h.p.config.dirs.Check(plugins); err != nil {
		return err
	}
	for _, file := range current.engine.MetadataFiles(c.req) {
		if c.watches[file] != nil {
			continue
		}
		at := h.p.opts.Host.Canonical(plugins) + strings.TrimPrefix(file, plugins)
		watch, failed := w.Add(path.Dir(at), path.Base(at), watch.Written|watch.Removed, func(string) { h.markContainerDirty(c) })
		switch {
		case failed == nil:
			c.watches[file] = watch
			continue
		case watch != nil:
			watch.Stop()
		}
		err = fmt.Errorf("watch device metadata %q: %w", at, failed)
	}
	return err
}
