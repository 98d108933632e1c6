// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"cmp"
	"context"
	"fmt"
	"maps"
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
	"github.com/jackfield/jackfield/internal/base/name"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/deliver/staging"
	"github.com/jackfield/jackfield/internal/engine"
	"github.com/jackfield/jackfield/internal/host/watch"
)

// hotplug updates running containers when networks are added to their pods or removed, and when a driver
// replaces the metadata of their resource claims. It watches the directory of device-info files and the
// directories of the metadata. The runtime does not wait for it.
type hotplug struct {
	*daemon
	current         func() *core
	state           *stateDir
	containers      *containerTable
	checkResponsive func(dir string) error
	wake            wakeup
	watcher         atomic.Pointer[watch.Watcher] // nil while nothing is watched
	infoFileChanges atomic.Uint64                 // counts the changes of device-info files

	mu       sync.Mutex
	running  map[string]*runningContainer // by ID; those with a staging directory
	dir      string                       // the watched directory; "" for none
	endWatch context.CancelFunc           // nil for none
}

// runningContainer is a container that hotplug updates. hotplug.mu guards dirty, updates and timer.
type runningContainer struct {
	pod     *api.PodSandbox // constant
	c       *api.Container  // constant
	req     *engine.Request // constant
	dirty   bool            // schedule an update
	updates retryState
	timer   *time.Timer // of the next retry; nil before the first

	// watches are the watches of the metadata files of its claims, by path. They end with their watcher. Only
	// updateContainer uses them, because a call of a watcher can hang with the file system.
	watches map[string]*watch.Watch
	watcher *watch.Watcher
}

const (
	// hotplugSettle is the delay between a change and the reading of its file, because a CNI plugin that
	// writes one file often writes another.
	hotplugSettle = 5 * time.Millisecond
	// hotplugTimeout bounds the update of one container, which can query the kubelet.
	hotplugTimeout = 10 * time.Second
	// maxUpdates is how many containers are updated at the same time.
	maxUpdates = 16
)

// newHotplug returns a hotplug that wake wakes, for example after a container was removed.
func newHotplug(d *daemon, current func() *core, state *stateDir, containers *containerTable,
	checkResponsive func(dir string) error, wake wakeup) *hotplug {
	h := &hotplug{daemon: d, current: current, state: state, containers: containers,
		checkResponsive: checkResponsive, wake: wake, running: make(map[string]*runningContainer)}
	d.runOn(wake, 0, h.updateDirty)
	return h
}

// followConfig watches the configured directory of device-info files if sockets can be added to running
// containers.
func (h *hotplug) followConfig(cfg *config.Config) {
	if h.state.isStaged() {
		h.watch(cfg.DeviceInfo.CNIDir)
	}
}

// watch watches dir instead of the previous directory; "" stands for none. An unresponsive directory is
// watched as soon as it responds.
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
	ctx, h.endWatch = context.WithCancel(h.closing)
	go h.repeat(ctx, "networks that are added to running containers may not be noticed until the watch succeeds",
		"networks that are added to running containers are noticed again", func(watched func()) (time.Duration, error) {
			return 0, h.watchUntilFailure(ctx, dir, watched)
		})
}

// watchUntilFailure watches a directory until ctx ends or the watch fails. It calls watched when the watch
// has begun, and then updates everything once.
func (h *hotplug) watchUntilFailure(ctx context.Context, dir string, watched func()) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	w, err := watch.New(h.host, watch.Options{Failed: fail})
	if err != nil {
		return err
	}
	h.watcher.Store(w)
	defer func() {
		h.watcher.Store(nil)
		w.Close()
	}()
	if _, err := w.Add(h.host.Canonical(dir), "", watch.Written|watch.Removed, h.markFileDirty); err != nil {
		return err
	}
	watched()
	h.markAllDirty()
	<-ctx.Done()
	return context.Cause(ctx)
}

// add adds a container with a staging directory. req has the edits that the container received.
func (h *hotplug) add(pod *api.PodSandbox, c *api.Container, req *engine.Request) *runningContainer {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.running[c.GetId()]
	if one == nil {
		one = &runningContainer{pod: pod, c: c, req: req, updates: newRetryState()}
		h.running[c.GetId()] = one
	}
	return one
}

// synchronize adds the living containers of the store, and checks for changes that occurred while the plugin
// was not connected.
func (h *hotplug) synchronize(runtime string, store *staging.Store) {
	staged := store.TrackedContainers()
	isStaged := func(c *container) bool { return c.pod != nil && slices.Contains(staged, c.c.GetId()) }
	for _, c := range h.containers.list(isStaged) {
		h.add(c.pod, c.c, newRequest(runtime, c.pod, c.c))
	}
	h.markAllDirty()
}

// markFileDirty schedules an update of the containers in the sandbox that a device-info file belongs to; ""
// stands for every file.
func (h *hotplug) markFileDirty(file string) {
	h.infoFileChanges.Add(1) // before the running containers are read
	h.markDirty(func(c *runningContainer) bool {
		_, _, ok := name.MatchInfoFile(file, c.req.SandboxID)
		return ok || file == ""
	})
}

// markAllDirty schedules an update of all containers.
func (h *hotplug) markAllDirty() { h.markFileDirty("") }

// markContainerDirty schedules an update of one container.
func (h *hotplug) markContainerDirty(c *runningContainer) {
	h.markDirty(func(other *runningContainer) bool { return other == c })
}

// markDirty schedules an update of the matching containers.
func (h *hotplug) markDirty(match func(*runningContainer) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.running {
		if match(c) {
			c.dirty = true
			h.wake.send()
		}
	}
}

// updateDirty updates all containers that were marked. It runs in one goroutine, so two updates of a container never
// overlap.
func (h *hotplug) updateDirty() {
	deadline.Sleep(h.closing, hotplugSettle)
	dirty, ended := h.takeDirty()
	for _, c := range ended {
		for _, watch := range c.watches {
			watch.Stop()
		}
	}
	updateAll(dirty, func(c *runningContainer) {
		if h.closing.Err() == nil {
			ctx, cancel := context.WithTimeout(context.Background(), hotplugTimeout)
			defer cancel()
			h.updateContainer(ctx, c)
		}
	})
}

// updateAll updates several containers at a time, because each update can wait for a kubelet that hangs.
func updateAll(dirty []*runningContainer, update func(*runningContainer)) {
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

// takeDirty returns the containers to update, in order, and removes and returns the containers that have ended.
func (h *hotplug) takeDirty() (dirty, ended []*runningContainer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.running, func(id string, c *runningContainer) bool {
		lives := h.containers.hasContainer(id)
		switch {
		case !lives:
			ended = append(ended, c)
		case c.dirty:
			dirty = append(dirty, c)
			c.dirty = false
		}
		return !lives
	})
	slices.SortFunc(dirty, func(a, b *runningContainer) int {
		return cmp.Or(cmp.Compare(a.pod.GetId(), b.pod.GetId()), cmp.Compare(a.c.GetId(), b.c.GetId()))
	})
	return dirty, ended
}

// updateContainer applies the present state of its sandbox's networks to one container. An incomplete update
// is repeated, and removes nothing.
func (h *hotplug) updateContainer(ctx context.Context, c *runningContainer) {
	defer h.recoverPanic(new(error), c.pod)
	log := h.containerLog(c.pod, c.c)
	current, store := h.current(), h.state.store.Load()
	watchErr := h.watchMetadata(c, current)
	req := *c.req
	req.HasSocket = func(root, rel string) bool { return store.HasSocket(req.ContainerID, root, rel) }
	plan, err := current.engine.ResolveRunning(ctx, &req)
	if !h.containers.hasContainer(req.ContainerID) {
		// It ended meanwhile and no longer counts for the pod's limits.
		h.containers.removeContainer(req.SandboxID, req.ContainerID)
		return
	}
	if err != nil {
		h.counters.StagingFailed.Add(1)
		h.reportIncomplete(log, c, true, fmt.Errorf("the container keeps what it has: %w", err))
		return
	}
	failed, transient := skippedRequests(plan)
	if watchErr != nil {
		failed, transient = append(failed, watchErr), true
	}
	if all := slices.Concat(failed, plan.Unchecked); len(all) > 0 && store.UpdateRemoves(*plan.Staging) {
		// The sockets to remove may belong to the networks that cannot be read now.
		h.reportIncomplete(log, c, true, fmt.Errorf(
			"the container keeps what it has until all of its networks can be checked: %w", firstOf(all)))
		return
	}
	change, err := store.Update(*plan.Staging)
	if errdefs.IsNotFound(err) {
		return // it was removed meanwhile
	}
	if err != nil {
		h.counters.StagingFailed.Add(1)
		failed, transient = append(failed, err), true
	}
	if len(plan.Unchecked) > 0 {
		// An unreadable source may have more networks. No event reports that it can be read again.
		failed, transient = append(failed, plan.Unchecked...), true
	}
	if len(failed) > 0 {
		h.reportIncomplete(log, c, transient, firstOf(failed))
	} else {
		h.reportComplete(log, c)
	}
	if !change.Empty() {
		h.counters.HotPlugs.Add(1)
		log.WithFields(logrus.Fields{"added": change.Added, "removed": change.Removed}).
			Info("networks or claims of the running container changed")
	}
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

// isTransient reports whether an error can disappear without a change of the container's device-info, which
// would cause an event.
func isTransient(err error) bool {
	return !errdefs.IsPermissionDenied(err) && !errdefs.IsInvalidArgument(err) &&
		!errdefs.IsConflict(err) && !errdefs.IsNotFound(err)
}

// firstOf returns the first of several errors, with the number of the others.
func firstOf(errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	return fmt.Errorf("%w (and %d more)", errs[0], len(errs)-1)
}

// reportIncomplete logs why an update was incomplete, unless the last update failed for the same reason. A
// transient failure is retried after a wait.
func (h *hotplug) reportIncomplete(log *logrus.Entry, c *runningContainer, transient bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.running[c.req.ContainerID] != c {
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

// reportComplete logs the end of a failure, and nothing after a success that follows another.
func (h *hotplug) reportComplete(log *logrus.Entry, c *runningContainer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.updates.recordSuccess() {
		log.Info("the networks of the running container are up to date again")
	}
}

// watchMetadata watches the metadata files of a container's claims. A driver replaces these files by rename,
// so the container, which has the old file mounted, never sees the new one. The update after the event
// rewrites devices.json.
func (h *hotplug) watchMetadata(c *runningContainer, current *core) (err error) {
	w := h.watcher.Load()
	if w != c.watcher {
		c.watcher, c.watches = w, make(map[string]*watch.Watch)
	}
	plugins := current.cfg.Kubelet.PluginsDir
	if w == nil || !c.req.HasDeviceMetadata() {
		return nil
	}
	if err := h.checkResponsive(plugins); err != nil {
		return err
	}
	markDirty := func(string) { h.markContainerDirty(c) }
	for _, file := range current.engine.MetadataFiles(c.req) {
		if c.watches[file] != nil {
			continue
		}
		at := h.host.Canonical(plugins) + strings.TrimPrefix(file, plugins)
		watch, failed := w.Add(path.Dir(at), path.Base(at), watch.Written|watch.Removed, markDirty)
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
