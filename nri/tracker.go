// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/jackfield/jackfield/pkg/status"
)

// tracker knows what which running container was given. What it knows is written
// to the state directory by a goroutine of its own, after the runtime has its
// answer: a directory that hangs costs records, and nobody's time.
type tracker struct {
	p     *Plugin
	jobs  *queue[func(r *status.Records)]
	start time.Time
	dir   atomic.Pointer[string]

	records *status.Records // of the directory opened; nil for none
	opened  string

	mu         sync.Mutex
	containers map[string]status.Container // one that is expected has no time
	gone       map[string]bool             // removed before the records were read
	loading    bool
	unwritten  map[string]bool   // containers whose record is to be written
	sandboxes  map[string]string // from ID to the pod's UID
}

// maxTracked bounds the jobs that wait for the state directory.
const maxTracked = 4096

func newTracker(p *Plugin) *tracker {
	t := &tracker{p: p, start: time.Now(), containers: make(map[string]status.Container), sandboxes: make(map[string]string), unwritten: make(map[string]bool)}
	t.jobs = newQueue(maxTracked, t.job)
	return t
}

// use says which state directory the records are in.
func (t *tracker) use(stateDir string) { t.dir.Store(&stateDir) }

// job does one job with the records of the state directory in use. It runs on the
// queue's goroutine alone.
func (t *tracker) job(job func(*status.Records)) {
	dir := t.dir.Load()
	if dir == nil {
		return // no configuration came into force
	}
	if t.records == nil || *dir != t.opened {
		records, err := status.OpenRecords(t.p.opts.Host, *dir)
		if err != nil {
			t.records = nil
			t.failed(err)
			return
		}
		t.records, t.opened = records, *dir
	}
	job(t.records)
}

func (t *tracker) failed(err error) {
	t.p.counters.StatusFailed.Add()
	t.p.log.WithError(err).Warn("jackfield status may not know of some containers after a restart")
}

func (t *tracker) do(job func(r *status.Records)) {
	if !t.jobs.put(job) {
		t.p.counters.StatusFailed.Add()
	}
}

// close has what waits written.
func (t *tracker) close() {
	t.do(t.write)
	t.jobs.close()
}

// live notes a sandbox.
func (t *tracker) live(pod *api.PodSandbox) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sandboxes[pod.GetId()] = pod.GetUid()
}

// dead drops a sandbox, and what its containers were given.
func (t *tracker) dead(sandbox string) {
	t.mu.Lock()
	delete(t.sandboxes, sandbox)
	var ids []string
	for id, c := range t.containers {
		if c.Sandbox == sandbox {
			ids = append(ids, id)
		}
	}
	t.mu.Unlock()
	for _, id := range ids {
		t.forget(id)
	}
}

// expect says that given will be called, unless the container goes before.
func (t *tracker) expect(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.containers[id] = status.Container{ContainerID: id}
}

// given notes what a container was given.
func (t *tracker) given(c status.Container) {
	t.mu.Lock()
	if _, there := t.containers[c.ContainerID]; !there {
		t.mu.Unlock()
		return
	}
	t.containers[c.ContainerID] = c
	first := len(t.unwritten) == 0
	t.unwritten[c.ContainerID] = true
	t.mu.Unlock()
	if first {
		time.AfterFunc(recordAfter, func() { t.do(t.write) })
	}
}

// recordAfter is how long a record waits for others, and for the creations that are
// under way: writing files slows those down. A daemon that is killed in between
// does not know of the container afterwards.
const recordAfter = 200 * time.Millisecond

// write writes the records that wait.
func (t *tracker) write(r *status.Records) {
	t.mu.Lock()
	var all []status.Container
	for id := range t.unwritten {
		if c, ok := t.containers[id]; ok {
			all = append(all, c)
		}
	}
	clear(t.unwritten)
	t.mu.Unlock()
	for i := range all {
		if err := r.Write(&all[i]); err != nil {
			t.failed(err)
		}
	}
}

// forget drops a container. One that was given nothing costs a look at a map.
func (t *tracker) forget(id string) {
	t.mu.Lock()
	_, known := t.containers[id]
	delete(t.containers, id)
	if t.unwritten[id] {
		delete(t.unwritten, id)
		known = false
	}
	if t.loading {
		t.gone[id] = true
	}
	t.mu.Unlock()
	if known {
		t.do(func(r *status.Records) {
			if err := r.Remove(id); err != nil {
				t.failed(err)
			}
		})
	}
}

// synchronize drops what does not live and reads the records of what does, from
// before a restart.
func (t *tracker) synchronize(pods []*api.PodSandbox, alive map[string]bool) {
	t.mu.Lock()
	clear(t.sandboxes)
	for _, pod := range pods {
		t.sandboxes[pod.GetId()] = pod.GetUid()
	}
	for id := range t.containers {
		if !alive[id] {
			delete(t.containers, id)
		}
	}
	t.loading, t.gone = true, make(map[string]bool)
	t.mu.Unlock()
	began := time.Now()
	t.do(func(r *status.Records) {
		// A container that was created meanwhile has a record, and is not among
		// those that were alive then.
		found, err := r.Retain(func(id string) bool { return alive[id] || t.knows(id) })
		if err != nil {
			t.failed(err)
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		for _, c := range found {
			if _, newer := t.containers[c.ContainerID]; !newer && !t.gone[c.ContainerID] {
				t.containers[c.ContainerID] = c
			}
		}
		t.loading, t.gone = false, nil
		t.p.log.WithField("records", len(found)).WithField("took", time.Since(began).String()).Debug("status records read")
	})
}

func (t *tracker) knows(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.containers[id]
	return ok
}

func (t *tracker) count() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := uint64(0)
	for _, c := range t.containers {
		if !t.p.creations.waits(c.Sandbox, c.ContainerID) {
			n++
		}
	}
	return n
}

func (t *tracker) list() ([]status.Container, []status.Sandbox) {
	t.mu.Lock()
	pods := make([]status.Sandbox, 0, len(t.sandboxes))
	for id, uid := range t.sandboxes {
		pods = append(pods, status.Sandbox{ID: id, UID: uid})
	}
	out := make([]status.Container, 0, len(t.containers))
	for _, c := range t.containers {
		if !c.Since.IsZero() && !t.p.creations.waits(c.Sandbox, c.ContainerID) {
			out = append(out, c)
		}
	}
	t.mu.Unlock()
	status.Sort(out)
	slices.SortFunc(pods, func(a, b status.Sandbox) int { return strings.Compare(a.ID, b.ID) })
	return out, pods
}
