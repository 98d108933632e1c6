// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/containerd/nri/pkg/api"

	"github.com/jackfield/jackfield/internal/report/status"
)

// containerTable has the sandboxes and containers that live: all that the runtime reported when the
// plugin registered, and those that were given something since.
type containerTable struct {
	mu           sync.Mutex
	synchronized bool // the runtime has reported what lives
	// reportsStarts says that this runtime reports starts. Without a report nothing is known.
	reportsStarts bool
	sandboxes     map[string]sandbox
	containers    map[string]*container // by ID
	ended         []*runningContainer   // whose watches are to be stopped

	// recorded are the records of an earlier process, by container. It is nil once the runtime has reported what
	// lives.
	recorded   map[string]*status.Container
	wakeWriter func() // triggers writeRecords

	writing sync.Mutex                   // guards written
	written map[string]*status.Container // the records in the state directory, by ID
}

// sandbox is a sandbox that lives. One that is older than the connection is preexisting: containerd
// reports neither the end nor the removal of a pod that is older than its own process, but reports
// those of the pod's containers.
type sandbox struct {
	podUID      string
	preexisting bool
	// names are those of containers with a directory for their sockets. A second one succeeds the first.
	names map[string]bool
}

// container is a container that lives. containerTable.mu guards what is not constant.
type container struct {
	pod *api.PodSandbox // constant; nil where the runtime did not report it
	c   *api.Container  // constant
	// restored means that only the record of an earlier process is known: c has the names, and pod is nil.
	restored bool

	creation *creation         // nil once it has started
	record   *status.Container // what it was given; nil for nothing
	suspect  bool              // whether it has what it requested is to be checked
	missed   *status.Container // what it lacks; nil for nothing
	evicted  bool              // it was stopped because of that
	running  *runningContainer // nil without a staging directory
}

func newContainerTable(wakeWriter func()) *containerTable {
	return &containerTable{sandboxes: make(map[string]sandbox), containers: make(map[string]*container),
		written: make(map[string]*status.Container), wakeWriter: wakeWriter}
}

// synchronize takes what the runtime reports as living, in place of what was known before.
func (t *containerTable) synchronize(pods []*api.PodSandbox, containers []*api.Container) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.containers
	t.sandboxes, t.containers = make(map[string]sandbox), make(map[string]*container)
	podOf := make(map[string]*api.PodSandbox)
	for _, pod := range pods {
		podOf[pod.GetId()] = pod
		t.sandboxes[pod.GetId()] = sandbox{podUID: pod.GetUid(), preexisting: true}
	}
	for _, c := range containers {
		t.addName(c.GetPodSandboxId(), containerName(c))
		now := &container{pod: podOf[c.GetPodSandboxId()], c: c, record: t.recorded[c.GetId()]}
		now.suspect = now.pod != nil && c.GetState() != api.ContainerState_CONTAINER_STOPPED
		if old := before[c.GetId()]; old != nil {
			now.record, now.evicted, now.running = old.record, old.evicted, old.running
			if now.suspect {
				now.missed = old.missed
			}
			delete(before, c.GetId())
		}
		t.containers[c.GetId()] = now
	}
	for _, gone := range before {
		t.endRunning(gone)
	}
	t.synchronized, t.reportsStarts, t.recorded = true, false, nil
	t.wakeWriter()
}

// addName notes that a container of the name was created, and reports whether there was one before. The
// lock is held.
func (t *containerTable) addName(sandboxID, name string) (again bool) {
	s, known := t.sandboxes[sandboxID]
	if !known {
		return false
	}
	again = s.names[name]
	if s.names == nil {
		s.names = make(map[string]bool)
		t.sandboxes[sandboxID] = s
	}
	s.names[name] = true
	return again
}

// isSuccessor reports whether an earlier container of the name was created in the sandbox.
func (t *containerTable) isSuccessor(sandboxID, name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.addName(sandboxID, name)
}

// addSandbox adds a sandbox that was created.
func (t *containerTable) addSandbox(pod *api.PodSandbox) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sandboxes[pod.GetId()] = sandbox{podUID: pod.GetUid()}
}

// addCreation adds a container that was given something. running is nil without a staging directory.
func (t *containerTable) addCreation(made *creation, running *runningContainer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.containers[made.c.GetId()] = &container{pod: made.pod, c: made.c, creation: made, running: running}
}

// setRecord keeps what a container was given.
func (t *containerTable) setRecord(record status.Container) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.containers[record.ContainerID]; c != nil {
		c.record = &record
		t.wakeWriter()
	}
}

// recordStart notes that a container starts, and returns its creation; nil where it was given nothing.
func (t *containerTable) recordStart(id string) *creation {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reportsStarts = true
	c := t.containers[id]
	if c == nil {
		return nil
	}
	made := c.creation
	c.creation = nil
	return made
}

// removeContainer drops a container that has ended.
func (t *containerTable) removeContainer(id string) {
	t.removeIf(func(c *container) bool { return c.c.GetId() == id })
}

// removeSandbox drops a sandbox and its containers.
func (t *containerTable) removeSandbox(id string) {
	t.removeIf(func(c *container) bool { return c.pod.GetId() == id || c.restored && c.c.GetPodSandboxId() == id })
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.sandboxes, id)
}

func (t *containerTable) removeIf(match func(*container) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.containers, func(_ string, c *container) bool {
		if !match(c) {
			return false
		}
		t.endRunning(c)
		return true
	})
	t.wakeWriter()
}

// endRunning has hotplug forget a container that is removed. The lock is held.
func (t *containerTable) endRunning(c *container) {
	if c.running != nil {
		c.running.ended = true
		t.ended = append(t.ended, c.running)
	}
}

func (t *containerTable) hasContainer(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.containers[id] != nil
}

// list returns the containers that match, by ID. The lock is held during match.
func (t *containerTable) list(match func(*container) bool) []*container {
	t.mu.Lock()
	defer t.mu.Unlock()
	var found []*container
	for _, c := range t.containers {
		if match(c) {
			found = append(found, c)
		}
	}
	slices.SortFunc(found, func(a, b *container) int { return cmp.Compare(a.c.GetId(), b.c.GetId()) })
	return found
}

// recordOf returns what a container was given; nil for nothing.
func (t *containerTable) recordOf(id string) *status.Container {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.containers[id]; c != nil {
		return c.record
	}
	return nil
}

// listRecords returns the records that pick returns for containers, in the order of the status.
func (t *containerTable) listRecords(pick func(*container) *status.Container) []status.Container {
	records := []status.Container{}
	t.list(func(c *container) bool {
		if record := pick(c); record != nil {
			records = append(records, *record)
		}
		return false
	})
	status.Sort(records)
	return records
}

// listStarted returns what the containers that have started were given.
func (t *containerTable) listStarted() []status.Container {
	return t.listRecords(func(c *container) *status.Container {
		if t.isPending(c) || c.record != nil && !c.record.HasInjected() {
			return nil
		}
		return c.record
	})
}

// listMissed returns what containers lack.
func (t *containerTable) listMissed() []status.Container {
	return t.listRecords(func(c *container) *status.Container { return c.missed })
}

// listSandboxes returns the sandboxes, by ID.
func (t *containerTable) listSandboxes() []status.Sandbox {
	t.mu.Lock()
	defer t.mu.Unlock()
	pods := make([]status.Sandbox, 0, len(t.sandboxes))
	for _, id := range slices.Sorted(maps.Keys(t.sandboxes)) {
		pods = append(pods, status.Sandbox{ID: id, UID: t.sandboxes[id].podUID})
	}
	return pods
}

func (t *containerTable) hasSandbox(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.sandboxes[id]
	return ok
}

// isPreexisting reports whether a sandbox is older than the connection.
func (t *containerTable) isPreexisting(sandboxID string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sandboxes[sandboxID].preexisting
}

// liveSandboxes returns the sandboxes that the runtime knows. known is false until the runtime has
// reported them. While the runtime is down they are those of before.
func (t *containerTable) liveSandboxes() (ids map[string]bool, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ids = make(map[string]bool, len(t.sandboxes))
	for id := range t.sandboxes {
		ids[id] = true
	}
	return ids, t.synchronized
}
