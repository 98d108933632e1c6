// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/jackfield/jackfield/internal/deliver/staging"
)

// A runtime before NRI 0.8 never calls Synchronize for a plugin that it started itself, and
// containerd then reports no end of a container that is older than its own process. Such a plugin
// restores living containers from its own records. Whether their sandboxes live is read from /proc.

const (
	// restoreInterval is the time between two searches for sandboxes that are gone.
	restoreInterval = time.Minute
	// minSandboxAge is the age at which a sandbox without a process is gone. CNI ADD comes before
	// the sandbox's first process.
	minSandboxAge = 2 * time.Minute
	// Limits of one search in /proc.
	maxSearched    = 100000
	maxProcessFile = 64 << 10
)

// registerWithoutSynchronize makes Configure the end of the registration.
func (p *Plugin) registerWithoutSynchronize() {
	p.log.Warn("this runtime reports no running containers to a plugin that it starts itself (NRI before 0.8): " +
		"they are restored from records; networks cannot be added to them, and they count for no limit of their pods")
	p.runtime.unsynchronized.Store(true)
	p.counters.Connections.Add(1)
	p.runtime.registered.Store(true)
	p.containers.restoreRecords()
	p.containers.wakeRestore()
}

// restoreRecorded rebinds the sockets of living containers, and removes the state of removed sandboxes.
func (p *Plugin) restoreRecorded() {
	current, store := p.config.core.Load(), p.state.store.Load()
	if !p.runtime.unsynchronized.Load() || current == nil {
		return
	}
	defer p.recoverPanic(new(error), nil)
	asOf := time.Now()
	processes, err := p.searchProcesses()
	if err != nil {
		p.log.WithError(err).Warn("cannot search /proc for running sandboxes: nothing is removed")
	}
	sandboxOf := p.recordedSandboxes(store, current.cfg.StateDir)
	lives := func(id string) bool {
		return err != nil || p.sandboxLives(id, sandboxOf, processes, current.cfg.StateDir)
	}
	p.containers.removeRestored(func(c *api.Container) bool { return !lives(c.GetPodSandboxId()) && !processes[c.GetId()] })
	hasContainer := func(id string) bool {
		sandbox, recorded := sandboxOf[id]
		return p.containers.hasContainer(id) || recorded && lives(sandbox)
	}
	p.reportRemoval(p.log, "containers that are gone", store.Retain(asOf, lives, hasContainer))
}

// sandboxLives reports whether a process of the sandbox or of one of its containers lives.
func (p *Plugin) sandboxLives(id string, sandboxOf map[string]string, processes map[string]bool, stateDir string) bool {
	if p.containers.isCreatedHere(id) || processes[id] || containerID.FindString(id) != id {
		return true
	}
	for container, sandbox := range sandboxOf {
		if sandbox == id && processes[container] {
			return true
		}
	}
	st, err := p.opts.Host.Lstat(path.Join(staging.SandboxesDir(stateDir), id))
	return err == nil && time.Since(time.Unix(st.Mtim.Unix())) < minSandboxAge
}

// recordedSandboxes returns the sandbox of each container that has a staging directory.
func (p *Plugin) recordedSandboxes(store *staging.Store, stateDir string) map[string]string {
	sandboxOf := make(map[string]string)
	ids, err := store.Containers()
	p.reportRemoval(p.log, "containers that are gone", err)
	for _, id := range ids {
		sandboxes, err := staging.RecordedSandboxes(p.opts.Host, stateDir, id)
		p.reportRemoval(p.log, "containers that are gone", err)
		if len(sandboxes) > 0 {
			sandboxOf[id] = sandboxes[0]
		}
	}
	return sandboxOf
}

// containerID matches the ID of a sandbox or container.
var containerID = regexp.MustCompile(`[0-9a-f]{64}`)

// searchProcesses returns the IDs in the command lines and cgroups of all processes: a shim or monitor has
// the ID of its sandbox or container as an argument, and a container's process has its ID in the
// cgroup.
func (p *Plugin) searchProcesses() (map[string]bool, error) {
	names, err := p.opts.Host.ReadDir("/proc", maxSearched)
	if err != nil {
		return nil, err
	}
	found := make(map[string]bool)
	for _, pid := range names {
		if pid == "" || strings.Trim(pid, "0123456789") != "" {
			continue
		}
		for _, name := range []string{"cmdline", "cgroup"} {
			data, _ := p.opts.Host.ReadFile(filepath.Join("/proc", pid, name), maxProcessFile) // nothing of a process that has ended
			for _, id := range containerID.FindAllString(string(data), -1) {
				found[id] = true
			}
		}
	}
	return found, nil
}

// restoreRecords adds the containers of the records that an earlier process wrote.
func (t *containerTable) restoreRecords() {
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

// removeRestored drops restored containers that are gone.
func (t *containerTable) removeRestored(isGone func(*api.Container) bool) {
	for _, c := range t.list(func(c *container) bool { return c.restored }) {
		if isGone(c.c) {
			t.removeContainer(c.c.GetId())
		}
	}
}

// addPreexisting adds a sandbox of which only a container is reported.
func (t *containerTable) addPreexisting(pod *api.PodSandbox) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.sandboxes[pod.GetId()]; !known {
		t.sandboxes[pod.GetId()] = sandbox{podUID: pod.GetUid(), preexisting: true}
	}
}

// isCreatedHere reports whether the runtime reported the creation of a sandbox, so that it reports its end.
func (t *containerTable) isCreatedHere(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, known := t.sandboxes[id]
	return known && !s.preexisting
}

// forgetPredecessor removes what is kept for restored containers of the same name: the kubelet creates
// a container again only after its predecessor has ended.
func (p *Plugin) forgetPredecessor(pod *api.PodSandbox, c *api.Container) {
	if !p.runtime.unsynchronized.Load() {
		return
	}
	restored := p.containers.list(func(one *container) bool {
		return one.restored && one.c.GetPodSandboxId() == pod.GetId() && one.c.GetName() == containerName(c) && one.c.GetId() != c.GetId()
	})
	for _, one := range restored {
		p.forgetContainer(pod, one.c)(p.state.store.Load())
	}
}
