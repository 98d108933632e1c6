// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/policy"
	"github.com/jackfield/jackfield/pkg/resolve"
	"github.com/jackfield/jackfield/pkg/staging"
)

// creations are the containers that were given something and have not started. A runtime
// does not always report that a creation failed after NRI's part of it: CRI-O does not
// when the OCI runtime fails. The kubelet starts each container of a pod before it creates
// the next one, so what has not started by then never will.
//
// A container that was created and has no StartContainer is forgotten when another one
// takes its name, or when it is certain that it does not exist: see sweepFailedCreations.
// Until then it counts against no limit and is not in the status.
type creations struct {
	mu sync.Mutex
	// reported says that this runtime reports starts. Without a report nothing is known.
	reported bool
	pending  map[string]map[string]*creation // by sandbox and container ID
}

// creation is one container that was given something.
type creation struct {
	pod   *api.PodSandbox
	c     *api.Container
	usage *policy.Usage // nil where no rule limits it
	// adjust is what the runtime was answered.
	adjust *api.ContainerAdjustment
	begun  time.Time
	// checked is when the last check began whether the container exists; at first it is begun.
	checked time.Time
}

// begin notes a container that was given something.
func (cs *creations) begin(pod *api.PodSandbox, c *api.Container, usage *policy.Usage, adjust *api.ContainerAdjustment) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.pending == nil {
		cs.pending = make(map[string]map[string]*creation)
	}
	if cs.pending[pod.GetId()] == nil {
		cs.pending[pod.GetId()] = make(map[string]*creation)
	}
	now := time.Now()
	cs.pending[pod.GetId()][c.GetId()] = &creation{pod, c, usage, adjust, now, now}
}

// started notes that a container starts, and counts it again.
func (cs *creations) started(sandboxID, containerID string, ledger *resolve.Ledger) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.reported = true
	one := cs.pending[sandboxID][containerID]
	if one == nil {
		return
	}
	if one.usage != nil {
		ledger.Note(sandboxID, containerName(one.c), containerID, *one.usage)
	}
	cs.drop(sandboxID, containerID)
}

// forget drops a container that ended or was removed.
func (cs *creations) forget(sandboxID, containerID string) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.drop(sandboxID, containerID)
}

// drop removes a container. The lock is held.
func (cs *creations) drop(sandboxID, containerID string) {
	if delete(cs.pending[sandboxID], containerID); len(cs.pending[sandboxID]) == 0 {
		delete(cs.pending, sandboxID)
	}
}

// forgetSandbox drops the containers of a sandbox.
func (cs *creations) forgetSandbox(id string) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	delete(cs.pending, id)
}

// reset begins a connection, whose runtime says what lives.
func (cs *creations) reset() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.reported, cs.pending = false, nil
}

// failed lists the containers of a sandbox that never started, before another one is
// created in it.
func (cs *creations) failed(sandboxID, containerID string) []*creation {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if !cs.reported {
		return nil
	}
	var out []*creation
	for id, one := range cs.pending[sandboxID] {
		if id != containerID {
			out = append(out, one)
		}
	}
	return out
}

// waits reports whether a container has not started, as far as the runtime reports that.
func (cs *creations) waits(sandboxID, containerID string) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.reported && cs.pending[sandboxID][containerID] != nil
}

// adjustment is what the runtime was answered for a container that has not started; nil
// for nothing.
func (cs *creations) adjustment(sandboxID, containerID string) *api.ContainerAdjustment {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if one := cs.pending[sandboxID][containerID]; one != nil {
		return one.adjust
	}
	return nil
}

// forgetFailed forgets earlier attempts to create a container of this name, and counts
// what else never started in the pod against no limit.
func (p *Plugin) forgetFailed(core *core, pod *api.PodSandbox, c *api.Container) {
	for _, one := range p.creations.failed(pod.GetId(), c.GetId()) {
		if containerName(one.c) != containerName(c) {
			p.ledger.Drop(pod.GetId(), one.c.GetId())
			continue
		}
		p.containerLog(one.pod, one.c).WithField("next", c.GetId()).Info("the container never started: removed what it was given")
		remove := p.forgotten(one.pod, one.c)
		if core.store != nil { // on a worker already
			remove(core.store)
		}
	}
}

// crio is the name by which CRI-O registers plugins.
const crio = "cri-o"

// overdue returns the containers that have not started for age, and leaves them out for as
// long again.
func (cs *creations) overdue(age time.Duration) []*creation {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if !cs.reported {
		return nil
	}
	var out []*creation
	for _, sandbox := range cs.pending {
		for _, one := range sandbox {
			if time.Since(one.checked) >= age {
				one.checked = time.Now()
				out = append(out, one)
			}
		}
	}
	return out
}

// sweepFailedCreations removes what was created for containers that did not start for
// [staging.Settled] and certainly do not exist: no process has mounted the staging directory
// that the runtime was told to mount.
//
// That is proof under CRI-O alone, which has the OCI runtime create the container, with its
// mounts, before it answers CreateContainer. containerd creates it when it is started; until
// then a container that exists has no mounts. containerd reports failed creations itself.
func (p *Plugin) sweepFailedCreations() {
	core := p.core.Load()
	if core == nil || core.store == nil || p.runtimeName() != crio || !p.seesRuntime() {
		return
	}
	begun := make(map[string]time.Time)
	overdue := slices.DeleteFunc(p.creations.overdue(staging.Settled), func(one *creation) bool {
		dir := p.opts.Host.Path(staging.ContainerDir(core.cfg.StateDir, one.c.GetId()))
		return !slices.ContainsFunc(one.adjust.GetMounts(), func(m *api.Mount) bool { return m.GetSource() == dir })
	})
	if len(overdue) == 0 {
		return
	}
	for _, one := range overdue {
		begun[one.c.GetId()] = one.begun
	}
	unmounted, err := core.store.Unmounted(begun, sweepPatience)
	if err != nil {
		p.log.WithError(err).Warn("cannot check which containers that never started exist: what was created for them stays until their pods are removed")
		return
	}
	for _, one := range overdue {
		if slices.Contains(unmounted, one.c.GetId()) && p.creations.waits(one.pod.GetId(), one.c.GetId()) {
			p.containerLog(one.pod, one.c).Info("the container never started and does not exist: removed what it was given")
			p.forgotten(one.pod, one.c)(core.store)
		}
	}
}

// seesRuntime reports whether this process may inspect the runtime's process. It sees the
// containers' processes then, which are in the runtime's PID namespace or below it.
func (p *Plugin) seesRuntime() bool {
	pid := p.runtimePID.Load()
	if pid <= 0 {
		return false
	}
	_, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	return err == nil
}

// runtimePID returns the process ID of the runtime, or 0 where this process's PID namespace
// does not have it. conn is nil for a connection that the runtime passed on to its child.
func runtimePID(conn net.Conn) int32 {
	if conn == nil {
		return int32(os.Getppid())
	}
	if counted, ok := conn.(*countedConn); ok {
		conn = counted.Conn
	}
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return 0
	}
	raw, err := unixConn.SyscallConn()
	if err != nil {
		return 0
	}
	var cred *unix.Ucred
	if cerr := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); cerr != nil || err != nil {
		return 0
	}
	return cred.Pid
}
