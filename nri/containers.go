// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/jackfield/jackfield/internal/deadline"
	"github.com/jackfield/jackfield/internal/status"
	"github.com/jackfield/jackfield/pkg/staging"
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

	recordsUnread bool   // the records of containers are to be read
	wakeWriter    func() // has writeRecords called

	writing sync.Mutex                   // guards written
	written map[string]*status.Container // the records in the state directory, by ID
}

// sandbox is a sandbox that lives. One that is older than the connection is preexisting: containerd
// reports neither the end nor the removal of a pod that is older than its own process, but reports
// those of the pod's containers.
type sandbox struct {
	podUID      string
	preexisting bool
}

// container is a container that lives. containerTable.mu guards what is not constant.
type container struct {
	pod *api.PodSandbox // constant; nil where the runtime did not report it
	c   *api.Container  // constant

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
		now := &container{pod: podOf[c.GetPodSandboxId()], c: c}
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
	t.synchronized, t.reportsStarts, t.recordsUnread = true, false, true
	t.wakeWriter()
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
	made.begun = time.Now()
	made.checked = made.begun
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
	t.removeIf(func(c *container) bool { return c.pod.GetId() == id })
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

// find returns a container, or nil.
func (t *containerTable) find(id string) *container {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.containers[id]
}

func (t *containerTable) hasContainer(id string) bool { return t.find(id) != nil }

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
		if t.isPending(c) {
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

// A runtime does not always report that a creation failed after NRI's part of it: CRI-O does not
// when the OCI runtime fails. The kubelet starts each container of a pod before it creates the next
// one, so what has not started by then never will.
//
// A container that was created and has no StartContainer is forgotten when another one takes its
// name, or when it is certain that it does not exist: see sweepFailedCreations. Until then it counts
// against no limit and is not in the status.

// isPending reports whether a container has not started, as far as the runtime reports that. The
// lock is held.
func (t *containerTable) isPending(c *container) bool { return t.reportsStarts && c.creation != nil }

// adjustmentOf is what the runtime was answered for a container that has not started; nil for
// nothing.
func (t *containerTable) adjustmentOf(id string) *api.ContainerAdjustment {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.containers[id]; c != nil && c.creation != nil {
		return c.creation.adjust
	}
	return nil
}

// forgetFailedCreations forgets earlier attempts to create a container of this name, and counts
// what else never started in the pod against no limit. It runs on a worker.
func (p *Plugin) forgetFailedCreations(store *staging.Store, pod *api.PodSandbox, c *api.Container) {
	table := p.containers.containerTable
	failed := table.list(func(one *container) bool {
		return table.isPending(one) && one.pod.GetId() == pod.GetId() && one.c.GetId() != c.GetId()
	})
	for _, one := range failed {
		if containerName(one.c) != containerName(c) {
			p.containers.ledger.Drop(pod.GetId(), one.c.GetId())
			continue
		}
		p.containerLog(one.pod, one.c).WithField("next", c.GetId()).Info("the container never started: removed its state")
		remove := p.forgetContainer(one.pod, one.c)
		if store != nil {
			remove(store)
		}
	}
}

// sweepFailedCreations removes what was created for containers that did not start for
// [staging.MinOrphanAge] and certainly do not exist: no process has mounted the staging directory
// that the runtime's mount names.
//
// That is proof under CRI-O alone, which has the OCI runtime create the container, with its
// mounts, before it answers CreateContainer. containerd creates it when it is started; until
// then a container that exists has no mounts. containerd reports failed creations itself.
func (p *Plugin) sweepFailedCreations() {
	current, table := p.config.core.Load(), p.containers.containerTable
	store := p.state.store.Load()
	if store == nil || p.runtimeName() != crio || !p.runtime.seesRuntime() {
		return
	}
	begun := make(map[string]time.Time)
	overdue := table.list(func(one *container) bool {
		if !table.isPending(one) || time.Since(one.creation.checked) < staging.MinOrphanAge {
			return false
		}
		one.creation.checked = time.Now()
		dir := p.opts.Host.Path(staging.ContainerDir(current.cfg.StateDir, one.c.GetId()))
		if !slices.ContainsFunc(one.creation.adjust.GetMounts(), func(m *api.Mount) bool { return m.GetSource() == dir }) {
			return false
		}
		begun[one.c.GetId()] = one.creation.begun
		return true
	})
	if len(overdue) == 0 {
		return
	}
	unmounted, err := store.UnmountedContainers(begun, sweepTimeout)
	if err != nil {
		p.log.WithError(err).Warn("cannot check which containers that never started exist: their state stays until their pods are removed")
		return
	}
	for _, one := range overdue {
		if slices.Contains(unmounted, one.c.GetId()) && table.adjustmentOf(one.c.GetId()) != nil {
			p.containerLog(one.pod, one.c).Info("the container never started and does not exist: removed its state")
			p.forgetContainer(one.pod, one.c)(store)
		}
	}
}

// The status records of containers are in the state directory, from where a restarted plugin reads
// them. A goroutine of its own writes them: a directory that hangs costs records, and delays no
// container.

// recordDelay is how long a record waits for others, and for creations under way, which
// the writing of files slows down. A daemon that is killed in between does not know of
// the container afterwards.
const recordDelay = 200 * time.Millisecond

// currentRecords returns what the containers were given, by ID, and whether the records in the state
// directory are to be read before.
func (t *containerTable) currentRecords() (records map[string]*status.Container, unread bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	records = make(map[string]*status.Container)
	for id, c := range t.containers {
		if c.record != nil {
			records[id] = c.record
		}
	}
	return records, t.recordsUnread
}

// addRecords keeps what the containers were given before a restart.
func (t *containerTable) addRecords(found []status.Container) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, record := range found {
		if c := t.containers[record.ContainerID]; c != nil && c.record == nil {
			c.record = &record
			t.written[record.ContainerID] = &record
		}
	}
}

// writeRecords makes the records in the state directory those of the table. A record that cannot be
// written is lost.
func (p *Plugin) writeRecords() {
	deadline.Sleep(p.closing, recordDelay)
	current, table := p.config.core.Load(), p.containers.containerTable
	table.writing.Lock()
	defer table.writing.Unlock()
	records, unread := table.currentRecords()
	if current == nil || !unread && maps.Equal(records, table.written) {
		return
	}
	files, err := status.OpenRecords(p.opts.Host, current.cfg.StateDir)
	if err != nil {
		p.reportLostRecord(err)
		return
	}
	if unread {
		p.readRecords(files)
		records, _ = table.currentRecords()
	}
	for id, record := range records {
		if table.written[id] != record {
			p.reportLostRecord(files.Write(record))
		}
	}
	for id := range table.written {
		if records[id] == nil {
			p.reportLostRecord(files.Remove(id))
		}
	}
	table.written = records
}

// readRecords reads the records of containers that live, and removes all others.
func (p *Plugin) readRecords(files *status.Records) {
	p.containers.mu.Lock()
	p.containers.recordsUnread = false
	p.containers.mu.Unlock()
	began := time.Now()
	found, err := files.Retain(p.containers.hasContainer)
	p.reportLostRecord(err)
	p.containers.addRecords(found)
	p.log.WithField("records", len(found)).WithField("took", time.Since(began).String()).Debug("status records read")
	p.containers.wakeMissedCheck()
}

// reportLostRecord counts and logs an error; nil is none.
func (p *Plugin) reportLostRecord(err error) {
	if err != nil {
		p.counters.StatusFailed.Add(1)
		p.log.WithError(err).Warn("jackfield status may lose some containers after a restart")
	}
}
