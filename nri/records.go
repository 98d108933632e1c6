// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/jackfield/jackfield/internal/status"
)

// records knows which sandboxes live, and what each running container was given. A goroutine of
// its own writes that to the state directory: a directory that hangs costs records, and delays no
// container.
type records struct {
	p     *Plugin
	start time.Time
	background

	mu           sync.Mutex
	stateDir     string // "" before the first configuration
	sandboxes    map[string]sandbox
	synchronized bool // the runtime has reported the sandboxes
	containers   map[string]status.Container
	changed      map[string]bool // containers whose record is to be written or removed
	loading      bool            // records are to be read
	alive        map[string]bool // of these containers; nil while they are read
}

// sandbox is a sandbox that lives. One that is older than the connection is preexisting: containerd
// reports neither the end nor the removal of a pod that is older than its own process, but reports
// those of the pod's containers.
type sandbox struct {
	podUID      string
	preexisting bool
}

const (
	// maxChangedRecords bounds the records that wait for the state directory.
	maxChangedRecords = 4096
	// recordDelay is how long a record waits for others, and for creations under way, which
	// the writing of files slows down. A daemon that is killed in between does not know of
	// the container afterwards.
	recordDelay = 200 * time.Millisecond
)

func newRecords(p *Plugin) *records {
	t := &records{p: p, start: time.Now(), background: newBackground(),
		sandboxes: make(map[string]sandbox), containers: make(map[string]status.Container), changed: make(map[string]bool)}
	go t.writeUntilClosed()
	return t
}

// setStateDir sets the state directory that has the records.
func (t *records) setStateDir(stateDir string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stateDir = stateDir
}

func (t *records) writeUntilClosed() {
	defer close(t.done)
	for ended := false; !ended; {
		select {
		case <-t.p.closing.Done():
			ended = true
		case <-t.wakeup:
		}
		if !t.isLoading() {
			sleep(t.p.closing, recordDelay)
		}
		t.flushChanges()
	}
}

func (t *records) isLoading() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.loading
}

// flushChanges reads the records that are to be read, and then writes and removes those that changed.
func (t *records) flushChanges() {
	t.mu.Lock()
	dir, load, work := t.stateDir, t.loading, t.loading || len(t.changed) > 0
	t.mu.Unlock()
	if dir == "" || !work {
		return
	}
	files, err := status.OpenRecords(t.p.opts.Host, dir)
	if err != nil {
		t.reportFailure(err)
		return
	}
	if load {
		t.loadRecords(files)
	}
	t.mu.Lock()
	changed := t.changed
	t.changed = make(map[string]bool)
	t.mu.Unlock()
	for id := range changed {
		if c, ok := t.findContainer(id); ok {
			err = files.Write(&c)
		} else {
			err = files.Remove(id)
		}
		if err != nil {
			t.reportFailure(err)
		}
	}
}

// loadRecords reads the records of containers that are alive, and removes all others.
func (t *records) loadRecords(files *status.Records) {
	began := time.Now()
	t.mu.Lock()
	alive := t.alive
	t.alive = nil
	t.mu.Unlock()
	// A container that was created meanwhile has a record, and is not among those that were
	// alive then.
	found, err := files.Retain(func(id string) bool { return alive[id] || t.hasContainer(id) })
	if err != nil {
		t.reportFailure(err)
	}
	t.mu.Lock()
	for _, c := range found {
		if _, newer := t.containers[c.ContainerID]; !newer && !t.changed[c.ContainerID] {
			t.containers[c.ContainerID] = c
		}
	}
	t.loading = t.alive != nil // the runtime has synchronized again
	t.mu.Unlock()
	t.p.log.WithField("records", len(found)).WithField("took", time.Since(began).String()).Debug("status records read")
	t.p.containers.missed.wakeUp()
}

func (t *records) reportFailure(err error) {
	t.p.counters.StatusFailed.Add(1)
	t.p.log.WithError(err).Warn("jackfield status may lose some containers after a restart")
}

// markChanged has the record of a container written or removed. The lock is held.
func (t *records) markChanged(id string) {
	if len(t.changed) >= maxChangedRecords {
		t.p.counters.StatusFailed.Add(1)
		return
	}
	t.changed[id] = true
	t.wakeUp()
}

// addSandbox adds a sandbox that was created.
func (t *records) addSandbox(pod *api.PodSandbox) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sandboxes[pod.GetId()] = sandbox{podUID: pod.GetUid()}
}

// removeSandbox drops a sandbox and its containers.
func (t *records) removeSandbox(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.sandboxes, id)
	for containerID, c := range t.containers {
		if c.Sandbox == id {
			t.removeLocked(containerID)
		}
	}
}

// isPreexisting reports whether a sandbox is older than the connection.
func (t *records) isPreexisting(sandboxID string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sandboxes[sandboxID].preexisting
}

// liveSandboxes returns the sandboxes that the runtime knows. known is false until the runtime has
// reported them. While the runtime is down they are those of before.
func (t *records) liveSandboxes() (ids map[string]bool, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ids = make(map[string]bool, len(t.sandboxes))
	for id := range t.sandboxes {
		ids[id] = true
	}
	return ids, t.synchronized
}

// addContainer keeps what a container was given.
func (t *records) addContainer(c status.Container) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.containers[c.ContainerID] = c
	t.markChanged(c.ContainerID)
}

// removeContainer drops a container.
func (t *records) removeContainer(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.removeLocked(id)
}

func (t *records) removeLocked(id string) {
	_, known := t.containers[id]
	delete(t.containers, id)
	if known || t.loading {
		t.markChanged(id)
	}
}

// synchronize drops what does not live, and has the records read of containers from before a
// restart.
func (t *records) synchronize(pods []*api.PodSandbox, alive map[string]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.sandboxes)
	for _, pod := range pods {
		t.sandboxes[pod.GetId()] = sandbox{podUID: pod.GetUid(), preexisting: true}
	}
	t.synchronized = true
	maps.DeleteFunc(t.containers, func(id string, _ status.Container) bool { return !alive[id] })
	t.alive, t.loading = alive, true
	t.wakeUp()
}

func (t *records) findContainer(id string) (status.Container, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c, ok := t.containers[id]
	return c, ok
}

func (t *records) hasContainer(id string) bool {
	_, ok := t.findContainer(id)
	return ok
}

// listContainers returns the containers that have started, and the sandboxes.
func (t *records) listContainers() ([]status.Container, []status.Sandbox) {
	t.mu.Lock()
	pods := make([]status.Sandbox, 0, len(t.sandboxes))
	for id, s := range t.sandboxes {
		pods = append(pods, status.Sandbox{ID: id, UID: s.podUID})
	}
	out := make([]status.Container, 0, len(t.containers))
	for _, c := range t.containers {
		if !t.p.containers.creations.isPending(c.ContainerID) {
			out = append(out, c)
		}
	}
	t.mu.Unlock()
	status.Sort(out)
	slices.SortFunc(pods, func(a, b status.Sandbox) int { return strings.Compare(a.ID, b.ID) })
	return out, pods
}
