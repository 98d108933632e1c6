// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/jackfield/jackfield/internal/deliver/staging"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

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

// restoredContainers restores living containers from the plugin's own records, for a runtime before NRI 0.8
// that started the plugin. Such a runtime never calls Synchronize, and containerd then reports no end of a
// container that is older than its own process. /proc shows which sandboxes live.
type restoredContainers struct {
	*daemon
	current    func() *core
	state      *stateDir
	containers *containerTable
	active     atomic.Bool // the runtime never calls Synchronize
	wake       wakeup
}

// newRestoredContainers returns the replacement of Synchronize for a runtime that never calls it. It runs when it is
// woken, and every restoreInterval.
func newRestoredContainers(
	d *daemon, current func() *core, state *stateDir, containers *containerTable) *restoredContainers {
	r := &restoredContainers{daemon: d, current: current, state: state, containers: containers, wake: newWakeup()}
	d.runOn(r.wake, restoreInterval, r.sweep)
	return r
}

// start adds the recorded containers to the table.
func (r *restoredContainers) start() {
	r.log.Warn("this runtime reports no running containers to a plugin that it starts itself (NRI before 0.8): " +
		"they are restored from records; networks cannot be added to them, and they count for no limit of their pods")
	r.active.Store(true)
	r.containers.restoreRecorded()
	r.wake.send()
}

// sweep rebinds the sockets of living containers, and removes the state of removed sandboxes.
func (r *restoredContainers) sweep() {
	current, store := r.current(), r.state.store.Load()
	if !r.active.Load() || current == nil {
		return
	}
	defer r.recoverPanic(new(error), nil)
	asOf := time.Now()
	processes, err := searchProcesses(r.host)
	if err != nil {
		r.log.WithError(err).Warn("cannot search /proc for running sandboxes: nothing is removed")
	}
	sandboxOf := r.recordedSandboxes(store, current.cfg.StateDir)
	lives := func(id string) bool {
		return err != nil || r.sandboxLives(id, sandboxOf, processes, current.cfg.StateDir)
	}
	for _, one := range r.containers.list(func(c *container) bool { return c.restored }) {
		if sandbox := one.c.GetPodSandboxId(); !lives(sandbox) && !processes[one.c.GetId()] {
			r.containers.removeContainer(sandbox, one.c.GetId())
		}
	}
	hasContainer := func(id string) bool {
		sandbox, recorded := sandboxOf[id]
		return r.containers.hasContainer(id) || recorded && lives(sandbox)
	}
	r.reportRemoval(r.log, "containers that are gone", store.Retain(asOf, lives, hasContainer))
}

// sandboxLives reports whether the runtime reports the end of the sandbox, or a process of the sandbox or of
// one of its containers lives, or the sandbox is young.
func (r *restoredContainers) sandboxLives(
	id string, sandboxOf map[string]string, processes map[string]bool, stateDir string) bool {
	createdHere := r.containers.hasSandbox(id) && !r.containers.isPreexisting(id)
	if createdHere || processes[id] || containerID.FindString(id) != id {
		return true
	}
	for container, sandbox := range sandboxOf {
		if sandbox == id && processes[container] {
			return true
		}
	}
	st, err := r.host.Lstat(path.Join(staging.SandboxesDir(stateDir), id))
	return err == nil && time.Since(time.Unix(st.Mtim.Unix())) < minSandboxAge
}

// recordedSandboxes returns the sandbox of each container that has a staging directory.
func (r *restoredContainers) recordedSandboxes(store *staging.Store, stateDir string) map[string]string {
	sandboxOf := make(map[string]string)
	ids, err := store.Containers()
	r.reportRemoval(r.log, "containers that are gone", err)
	for _, id := range ids {
		sandboxes, err := staging.RecordedSandboxes(r.host, stateDir, id)
		r.reportRemoval(r.log, "containers that are gone", err)
		if len(sandboxes) > 0 {
			sandboxOf[id] = sandboxes[0]
		}
	}
	return sandboxOf
}

// forgetPredecessor removes the state of restored containers with the name of c: the kubelet creates a
// container again only after its predecessor has ended.
func (r *restoredContainers) forgetPredecessor(pod *api.PodSandbox, c *api.Container) {
	if !r.active.Load() {
		return
	}
	predecessors := r.containers.list(func(one *container) bool {
		return one.restored && one.c.GetPodSandboxId() == pod.GetId() &&
			one.c.GetName() == containerName(c) && one.c.GetId() != c.GetId()
	})
	for _, one := range predecessors {
		r.containers.removeContainer(pod.GetId(), one.c.GetId())
		r.state.removeContainer(pod, one.c)
	}
}

// containerID matches the ID of a sandbox or container.
var containerID = regexp.MustCompile(`[0-9a-f]{64}`)

// searchProcesses returns the container IDs in the command lines and cgroups of all processes: a shim or
// monitor has the ID of its sandbox or container as an argument, and a container's process has its ID in the
// cgroup.
func searchProcesses(host hostfs.Root) (map[string]bool, error) {
	names, err := host.ReadDir("/proc", maxSearched)
	if err != nil {
		return nil, err
	}
	found := make(map[string]bool)
	for _, pid := range names {
		if pid == "" || strings.Trim(pid, "0123456789") != "" {
			continue
		}
		for _, name := range []string{"cmdline", "cgroup"} {
			data, _ := host.ReadFile(filepath.Join("/proc", pid, name), maxProcessFile) // empty if the process has ended
			for _, id := range containerID.FindAllString(string(data), -1) {
				found[id] = true
			}
		}
	}
	return found, nil
}
