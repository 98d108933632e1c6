// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/host/watch"
)

// hostSocket is a socket of the host that is bound in containers.
type hostSocket struct {
	socket     edit.Socket // of the first container; all have the same root and rel
	checking   sync.Mutex  // one check at a time: another one could bind an older socket
	containers map[string]*record
	watch      *watch.Watch
	tenant     bool // watch belongs to the watcher of directories that tenants can write
	moving     bool // while it moves to the other watcher
}

// tenantPause is how long the watcher of directories that tenants can write sleeps after events
// that concern no socket.
const tenantPause = 2 * time.Millisecond

// tracker tracks the containers whose sockets are bound, and watches the sockets.
type tracker struct {
	records    *records
	ready      *readyFiles
	containers *containerDirs
	rebinder   *rebinder
	events     Events // nil for none
	watches    bool   // Options.Watch
	bg         sync.WaitGroup

	lock     *stateLock // guards the fields below
	tracked  map[string]*record
	sockets  map[string]*hostSocket  // by the socket's host path
	watchers map[bool]*watch.Watcher // by whether tenants can write the directories
	closed   bool
}

// startWatchers starts the watchers. Directories that tenants can write have one of their own, so that a
// tenant delays only tenants. After an error, Close ends the started watchers.
func (t *tracker) startWatchers() error {
	for tenant, pause := range map[bool]time.Duration{false: 0, true: tenantPause} {
		w, err := watch.New(t.records.host, watch.Options{Failed: t.reportFailure, Pause: pause})
		if err != nil {
			return err
		}
		t.watchers[tenant] = w
	}
	return nil
}

// reportFailure reports a failure that no single socket has, such as that a directory cannot be watched any more.
func (t *tracker) reportFailure(err error) { t.reportSocketFailure("", false, err) }

func (t *tracker) reportSocketFailure(socket string, tenant bool, err error) {
	if t.events != nil {
		t.events.Failed(socket, tenant, err)
	}
}

// watchSocket watches a socket, and then handles earlier changes of it. tenant selects the watcher.
// A watch of the other one is replaced.
func (t *tracker) watchSocket(src *hostSocket, tenant bool) {
	t.lock.mu.Lock()
	w := t.watchers[tenant]
	t.lock.mu.Unlock()
	if w == nil {
		return
	}
	dir, name := filepath.Split(src.socket.HostPath())
	watch, err := w.Add(filepath.Clean(dir), name, watch.Attributes, func(string) { t.onSocketEvent(src) })
	if err != nil && !errors.Is(err, os.ErrClosed) {
		t.reportFailure(fmt.Errorf("watch socket %q: %w", src.socket.HostPath(), err))
	}
	t.lock.mu.Lock()
	old := watch
	if t.sockets[src.socket.HostPath()] == src && watch != nil {
		old, src.watch, src.tenant = src.watch, watch, tenant
	}
	src.moving = false
	t.lock.mu.Unlock()
	if old != nil {
		old.Stop()
	}
	if old != watch {
		t.onSocketEvent(src)
	}
}

// updateWatcher moves the watch of a socket to the other watcher when tenants got or lost a
// directory on the way to it. The lock is held.
func (t *tracker) updateWatcher(src *hostSocket, tenant bool) {
	if src.watch != nil && src.tenant != tenant && !src.moving && !t.closed {
		src.moving = true
		t.bg.Go(func() { t.watchSocket(src, tenant) })
	}
}

// onSocketEvent checks a socket that may have been re-created, or whose permissions may have
// changed, and rebinds it. A socket that was removed stays bound until there is a new one: an
// application learns more from a refused connection than from a missing socket.
func (t *tracker) onSocketEvent(src *hostSocket) {
	defer func() {
		if r := recover(); r != nil {
			t.reportFailure(fmt.Errorf("rebind socket %q: internal error: %v: %w\n%s",
				src.socket.HostPath(), r, errdefs.ErrInternal, debug.Stack()))
		}
	}()
	began := time.Now()
	bound, tenant, err := t.rebinder.rebind(src)
	failed := err != nil && !errdefs.IsNotFound(err)
	t.lock.mu.Lock()
	t.updateWatcher(src, tenant)
	t.lock.mu.Unlock()
	if failed {
		t.reportSocketFailure(src.socket.HostPath(), tenant, fmt.Errorf("rebind socket %q: %w", src.socket.HostPath(), err))
	}
	if bound.containers > 0 && t.events != nil {
		t.events.Rebound(Rebound{Socket: src.socket.HostPath(), Containers: bound.containers, Again: bound.again,
			Took: time.Since(began), Tenant: tenant})
	}
}

// track remembers a container whose sockets are bound, and watches the sockets. The lock is held.
func (t *tracker) track(r *record) {
	if was := t.tracked[r.ID]; was != nil {
		r.rebinds = was.rebinds
	}
	t.untrack(r.ID)
	t.tracked[r.ID] = r
	if r.rebinds == nil {
		r.rebinds = make(map[string]int)
	}
	for i := range r.Sockets {
		k := &r.Sockets[i]
		src := t.sockets[k.HostPath()]
		check := func() { t.onSocketEvent(src) } // it may have changed since it was opened
		if src == nil {
			src = &hostSocket{socket: *k, containers: make(map[string]*record)}
			// The check of the socket moves the watch if a tenant can write on the way.
			check = func() { t.watchSocket(src, false) }
			t.sockets[k.HostPath()] = src
		}
		if t.watches && !t.closed {
			t.bg.Go(check)
		}
		src.containers[r.ID] = r
	}
}

// untrack forgets a container. The lock is held.
func (t *tracker) untrack(containerID string) {
	r := t.tracked[containerID]
	if r == nil {
		return
	}
	delete(t.tracked, containerID)
	for i := range r.Sockets {
		path := r.Sockets[i].HostPath()
		src := t.sockets[path]
		if src == nil {
			continue
		}
		if delete(src.containers, containerID); len(src.containers) > 0 {
			continue
		}
		delete(t.sockets, path)
		if src.watch != nil && !t.closed {
			t.bg.Go(src.watch.Stop) // it can wait for a watch of a file system that is unresponsive
			src.watch = nil
		}
	}
}

// trackRecorded tracks a container that an earlier process staged.
func (t *tracker) trackRecorded(sandboxID, containerID string) error {
	t.lock.mu.Lock()
	defer t.lock.mu.Unlock()
	if t.tracked[containerID] != nil || t.containers.status.Mode != ModeMount {
		return nil
	}
	r := t.records.read(sandboxID, containerID)
	if err := validateContainer(&r.Container); err != nil {
		return err
	}
	t.track(&r)
	return nil
}

// watchReadyDir tracks the containers of other processes, present and future.
func (t *tracker) watchReadyDir() error {
	dir := t.records.host.Canonical(readyDir(t.records.hostDir))
	if _, err := t.watchers[false].Add(dir, "", watch.Removed, t.onReadyEvent); err != nil {
		return err
	}
	t.onReadyEvent("")
	return nil
}

// onReadyEvent handles a ready file that was created or removed. The name "" stands for all.
func (t *tracker) onReadyEvent(name string) {
	names := []string{name}
	if name == "" {
		var err error
		if names, err = listNames(t.ready.dir); err != nil {
			t.reportFailure(fmt.Errorf("list containers of other processes: %w", err))
			return
		}
		names = append(names, t.list()...)
	}
	for _, name := range names {
		if !hostfs.IsUnfinished(name) {
			t.trackIfReady(name)
		}
	}
}

// trackIfReady tracks a container that is ready, and untracks one that is not.
func (t *tracker) trackIfReady(containerID string) {
	sandbox, err := os.ReadFile(filepath.Join(t.ready.dir, containerID))
	t.lock.mu.Lock()
	defer t.lock.mu.Unlock()
	if err != nil {
		t.untrack(containerID)
		return
	}
	err = checkIDs(string(sandbox), containerID)
	if err == nil {
		r := t.records.read(string(sandbox), containerID)
		if err = validateContainer(&r.Container); err == nil {
			t.track(&r)
			return
		}
	}
	t.untrack(containerID)
	t.reportFailure(fmt.Errorf("track container %q of another process: %w", containerID, err))
}

// list returns the containers that can be updated, of any owner, sorted.
func (t *tracker) list() []string {
	t.lock.mu.Lock()
	defer t.lock.mu.Unlock()
	return slices.Sorted(maps.Keys(t.tracked))
}

// hasSocket reports whether a tracked container has a socket of the host, or the directory in
// which the application creates that socket.
func (t *tracker) hasSocket(id, root, rel string) bool {
	t.lock.mu.Lock()
	defer t.lock.mu.Unlock()
	r := t.tracked[id]
	if r == nil {
		return false
	}
	rel = filepath.Clean(rel)
	return slices.ContainsFunc(r.Sockets, func(k edit.Socket) bool {
		return k.Root == root && filepath.Clean(k.Rel) == rel
	}) || slices.ContainsFunc(r.SocketDirs, func(d edit.SocketDir) bool {
		return d.Root == root && filepath.Clean(d.Rel) == filepath.Dir(rel)
	})
}

// stats counts the tracked containers and sockets.
func (t *tracker) stats() Stats {
	t.lock.mu.Lock()
	defer t.lock.mu.Unlock()
	return Stats{Containers: len(t.tracked), Sockets: len(t.sockets)}
}

// inventory returns the sockets of all tracked containers. It reads the host's file systems, so it can hang.
func (t *tracker) inventory() []PlacedSocket {
	var all []PlacedSocket
	t.lock.mu.Lock()
	for id, r := range t.tracked {
		for i := range r.Sockets {
			k := &r.Sockets[i]
			for _, at := range k.At {
				all = append(all, PlacedSocket{ContainerID: id, SandboxID: r.SandboxID, At: at, HostPath: k.HostPath(),
					Rebinds: r.rebinds[k.HostPath()]})
			}
		}
		for i := range r.SocketDirs {
			if d := &r.SocketDirs[i]; d.At != "" {
				all = append(all, PlacedSocket{ContainerID: id, SandboxID: r.SandboxID, At: d.At,
					HostPath: filepath.Join(d.Root, d.Rel), State: SocketDirectory})
			}
		}
	}
	t.lock.mu.Unlock()
	for i := range all {
		p := &all[i]
		if p.State == SocketDirectory {
			p.Since = modTime(t.records.file(p.SandboxID, p.ContainerID))
			continue
		}
		place := filepath.Join(t.containers.dir, p.ContainerID, p.At)
		// The record is written again with each network that comes or goes. The directory of the place is not.
		p.Since = modTime(filepath.Dir(place))
		bound, ok := boundSocket(place)
		if !ok {
			p.State, p.Since = SocketAwaited, time.Time{}
			continue
		}
		p.Identity, p.State = bound, SocketBound
		if created := modTime(place); created.After(p.Since) {
			p.Since = created
		}
		if present, ok := boundSocket(t.records.host.Path(p.HostPath)); !ok {
			p.State = SocketRemoved
		} else if present != bound {
			p.State = SocketOutdated
		} else if !isServed(place) {
			p.State = SocketRefusing
		}
	}
	return all
}

// close ends the watches.
func (t *tracker) close() error {
	t.lock.mu.Lock()
	watchers := t.watchers
	t.watchers, t.closed = nil, true
	t.lock.mu.Unlock()
	var errs []error
	for _, w := range watchers {
		errs = append(errs, w.Close())
	}
	t.bg.Wait()
	return errors.Join(errs...)
}
