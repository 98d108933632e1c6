// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/containerd/nri/pkg/api"

	"github.com/jackfield/jackfield/internal/engine"
	"github.com/jackfield/jackfield/internal/report/status"
)

// containerTable holds the living sandboxes and containers: all that the runtime listed when the plugin
// registered, and those that received an injection since. No method calls out with the lock held, except
// for the match function of list.
type containerTable struct {
	ledger         *engine.Ledger // the usage of the containers, for the limits of pods
	recordsChanged func()         // called after a change of records
	removed        func()         // called after a removal

	mu           sync.Mutex
	synchronized bool // the runtime has listed the living sandboxes
	// reportsStarts is set by the first report of a start. Some runtimes report no starts.
	reportsStarts bool
	sandboxes     map[string]sandbox
	containers    map[string]*container // by ID
	// recorded are the records of an earlier process, by container ID. It is nil once the runtime has listed
	// the living containers.
	recorded map[string]*status.Container
}

// sandbox is a living sandbox.
type sandbox struct {
	podUID string
	// preexisting means that the sandbox is older than the connection. containerd reports neither the end nor
	// the removal of a pod that is older than its own process, but reports both for the pod's containers.
	preexisting bool
	names       map[string]bool // of the containers with socket directories that were created in it
}

// container is a living container. containerTable.mu guards all fields that are not constant.
type container struct {
	pod *api.PodSandbox // constant; nil if the runtime did not report it
	c   *api.Container  // constant
	// restored means that only the record of an earlier process is known: c has the names, and pod is nil.
	restored bool // constant

	creation *creation         // nil once the container has started
	record   *status.Container // the outcome of its requests; nil if nothing was injected
	suspect  bool              // the missed check has not cleared the container
	missed   *status.Container // the requests that it runs without; nil for none
	evicted  bool              // the plugin stopped it because of missed
}

func newContainerTable(ledger *engine.Ledger, recordsChanged, removed func()) *containerTable {
	return &containerTable{ledger: ledger, recordsChanged: recordsChanged, removed: removed,
		sandboxes: make(map[string]sandbox), containers: make(map[string]*container)}
}

// synchronize replaces the content by the pods and containers that the runtime lists. Containers that the
// table has already keep their records.
func (t *containerTable) synchronize(pods []*api.PodSandbox, containers []*api.Container) {
	t.mu.Lock()
	before := t.containers
	t.sandboxes, t.containers = make(map[string]sandbox), make(map[string]*container)
	podOf := make(map[string]*api.PodSandbox)
	for _, pod := range pods {
		podOf[pod.GetId()] = pod
		t.sandboxes[pod.GetId()] = sandbox{podUID: pod.GetUid(), preexisting: true, names: make(map[string]bool)}
	}
	for _, c := range containers {
		if s, known := t.sandboxes[c.GetPodSandboxId()]; known {
			s.names[containerName(c)] = true
		}
		now := &container{pod: podOf[c.GetPodSandboxId()], c: c, record: t.recorded[c.GetId()]}
		now.suspect = now.pod != nil && c.GetState() != api.ContainerState_CONTAINER_STOPPED
		if old := before[c.GetId()]; old != nil {
			now.record, now.evicted = old.record, old.evicted
			if now.suspect {
				now.missed = old.missed
			}
		}
		t.containers[c.GetId()] = now
	}
	t.synchronized, t.reportsStarts, t.recorded = true, false, nil
	t.mu.Unlock()
	t.ledger.Retain(t.hasSandbox, t.hasContainer)
	t.recordsChanged()
	t.removed()
}

// addSandbox adds a sandbox that was created, or a preexisting one that the runtime reported only with one
// of its containers.
func (t *containerTable) addSandbox(pod *api.PodSandbox, preexisting bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.sandboxes[pod.GetId()]; !known || !preexisting {
		t.sandboxes[pod.GetId()] = sandbox{podUID: pod.GetUid(), preexisting: preexisting, names: make(map[string]bool)}
	}
}

// isSuccessor records that a container of this name is created in the sandbox, and reports whether an
// earlier container had the name.
func (t *containerTable) isSuccessor(sandboxID, name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, known := t.sandboxes[sandboxID]
	isSuccessor := s.names[name]
	if known {
		s.names[name] = true
	}
	return isSuccessor
}

// addCreation adds a container that is created. record is nil if nothing was injected.
func (t *containerTable) addCreation(created *creation, record *status.Container) {
	t.mu.Lock()
	t.containers[created.c.GetId()] = &container{pod: created.pod, c: created.c, creation: created, record: record}
	t.mu.Unlock()
	if record != nil {
		t.recordsChanged()
	}
}

// recordStart records that a container starts. From then on the container counts for the pod's limits again,
// if an earlier report of a failed creation had dropped it.
func (t *containerTable) recordStart(id string) {
	t.mu.Lock()
	t.reportsStarts = true
	var created *creation
	if c := t.containers[id]; c != nil {
		created, c.creation = c.creation, nil
	}
	t.mu.Unlock()
	if created != nil && created.plan.Usage != nil {
		t.ledger.RecordUsage(created.pod.GetId(), containerName(created.c), id, *created.plan.Usage)
	}
}

// removeContainer drops a container that has ended.
func (t *containerTable) removeContainer(sandboxID, id string) {
	t.mu.Lock()
	delete(t.containers, id)
	t.mu.Unlock()
	t.ledger.Drop(sandboxID, id)
	t.recordsChanged()
	t.removed()
}

// removeSandbox drops a sandbox and its containers.
func (t *containerTable) removeSandbox(id string) {
	t.mu.Lock()
	delete(t.sandboxes, id)
	maps.DeleteFunc(t.containers, func(_ string, c *container) bool {
		return c.pod.GetId() == id || c.restored && c.c.GetPodSandboxId() == id
	})
	t.mu.Unlock()
	t.ledger.Forget(id)
	t.recordsChanged()
	t.removed()
}

func (t *containerTable) hasContainer(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.containers[id] != nil
}

// hasSandbox reports whether the runtime has reported the sandbox and not its removal.
func (t *containerTable) hasSandbox(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, known := t.sandboxes[id]
	return known
}

// isPreexisting reports whether a sandbox is known and older than the connection.
func (t *containerTable) isPreexisting(sandboxID string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sandboxes[sandboxID].preexisting
}

// liveSandboxes returns the IDs of the living sandboxes. known is false until the runtime has listed them.
// While the runtime is down they are the last known ones.
func (t *containerTable) liveSandboxes() (ids map[string]bool, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ids = make(map[string]bool, len(t.sandboxes))
	for id := range t.sandboxes {
		ids[id] = true
	}
	return ids, t.synchronized
}

// list returns the containers that match, by ID. match is called with the lock held.
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

// listPending returns the other containers of the pod that have not started, if the runtime reports starts.
func (t *containerTable) listPending(sandboxID, exceptID string) []*container {
	return t.list(func(c *container) bool {
		return t.reportsStarts && c.creation != nil && c.pod.GetId() == sandboxID && c.c.GetId() != exceptID
	})
}

// adjustmentOf returns the adjustment of a container that has not started; nil for none.
func (t *containerTable) adjustmentOf(id string) *api.ContainerAdjustment {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.containers[id]; c != nil && c.creation != nil {
		return c.creation.adjustment
	}
	return nil
}

// recordOf returns the record of a container; nil for none.
func (t *containerTable) recordOf(id string) *status.Container {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.containers[id]; c != nil {
		return c.record
	}
	return nil
}

// listStarted returns the records of the containers that have started.
func (t *containerTable) listStarted() []status.Container {
	return t.listRecords(func(c *container) *status.Container {
		isPending := t.reportsStarts && c.creation != nil
		if isPending || c.record != nil && !c.record.HasInjected() {
			return nil
		}
		return c.record
	})
}

// listHolders returns the containers that live and have device nodes.
func (t *containerTable) listHolders() []engine.Holder {
	var holders []engine.Holder
	t.list(func(c *container) bool {
		if c.record != nil && len(c.record.Devices) > 0 && c.c.GetState() != api.ContainerState_CONTAINER_STOPPED {
			holders = append(holders, c.record.Holder())
		}
		return false
	})
	slices.SortFunc(holders, func(a, b engine.Holder) int { return cmp.Compare(a.ContainerID, b.ContainerID) })
	return holders
}

// listMissed returns the requests that containers run without.
func (t *containerTable) listMissed() []status.Container {
	return t.listRecords(func(c *container) *status.Container { return c.missed })
}

// listRecords returns the records that pick selects, in the order of the status.
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

// allRecords returns the records of all containers, by ID.
func (t *containerTable) allRecords() map[string]*status.Container {
	t.mu.Lock()
	defer t.mu.Unlock()
	records := make(map[string]*status.Container)
	maps.Copy(records, t.recorded)
	for id, c := range t.containers {
		if c.record != nil {
			records[id] = c.record
		}
	}
	return records
}

// setRecorded keeps the records of an earlier process until the runtime lists the living containers.
func (t *containerTable) setRecorded(records map[string]*status.Container) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.recorded = records
}

// restoreRecorded adds the containers of an earlier process, for a runtime that never lists the living ones.
func (t *containerTable) restoreRecorded() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, record := range t.recorded {
		if t.containers[id] == nil {
			c := &api.Container{Id: id, PodSandboxId: record.Sandbox, Name: record.Container}
			t.containers[id] = &container{c: c, restored: true, record: record}
		}
	}
	t.recorded = nil
}

// recordMissed stores the requests that a container runs without. It reports whether they are new.
func (t *containerTable) recordMissed(c *container, record *status.Container) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.containers[c.c.GetId()] != c {
		return false // it ended meanwhile, or is checked again
	}
	known := c.missed != nil
	if known {
		record.Since = c.missed.Since
	}
	c.missed = record
	return !known
}

// clearMissed records that a container lacks nothing, or that the plugin evicted it: containerd does not
// report the end of a container that is older than its own process.
func (t *containerTable) clearMissed(c *container, evicted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.suspect, c.missed, c.evicted = false, nil, c.evicted || evicted
}

// isEvictable reports whether a container that lacks something lives and was not evicted before.
func (t *containerTable) isEvictable(c *container) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.containers[c.c.GetId()] == c && c.missed != nil && !c.evicted
}
