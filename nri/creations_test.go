// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/jackfield/jackfield/pkg/staging"
)

// The state of a container that never started is removed after a while, but only where it is
// certain that the container does not exist.
func TestSweepOfFailedCreations(t *testing.T) {
	ctx := context.Background()
	h := newRunningHost(t, fmt.Sprintf(runningConfig, runningRule))
	h.listen("run/vsw/p1/a.sock")
	h.writeInfo("net1", "client", "/run/vsw/p1/a.sock")
	dir := filepath.Join(h.root, "run/jackfield/containers", h.c.Id)
	record := filepath.Join(h.root, "run/jackfield/sandboxes", h.pod.Id, h.c.Id+".container")
	sweep := func(what, runtime string, pid int32, started bool, age time.Duration, want bool) {
		t.Helper()
		_, err := h.p.Configure(ctx, "", runtime, "1.33.0")
		check(t, err)
		h.p.containers.mu.Lock() // as a new connection
		h.p.containers.reportsStarts = false
		clear(h.p.containers.containers)
		h.p.containers.mu.Unlock()
		h.create()
		if started {
			check(t, h.p.StartContainer(ctx, h.pod, &api.Container{Id: strings.Repeat("c", 64), PodSandboxId: h.pod.Id}))
		}
		h.p.runtime.pid.Store(pid)
		one := h.p.containers.find(h.c.Id).creation
		one.begun, one.checked = one.begun.Add(-age), one.checked.Add(-age)
		h.p.sweepFailedCreations()
		_, err = os.Stat(dir)
		_, rerr := os.Stat(record)
		if err == nil != want || rerr == nil != want {
			t.Errorf("%s: the staging directory: %v, the record: %v; want them: %t", what, err, rerr, want)
		}
	}
	self := int32(os.Getpid())
	const age = 2 * staging.MinOrphanAge
	sweep("of a runtime that creates containers when they start", "containerd", self, true, age, true)
	sweep("where the host's processes are not seen", "cri-o", 0, true, age, true)
	sweep("of a runtime that has not reported a start", "cri-o", self, false, age, true)
	sweep("too early", "cri-o", self, true, staging.MinOrphanAge/2, true)

	// The container is created but not started: its process has the mount.
	h.create()
	waiting := exec.Command("unshare", "--mount", "--propagation", "slave", "sh", "-c", `mkdir "$0" && mount --rbind "$1" "$0" && echo ready && exec sleep 600`,
		filepath.Join(h.root, "rootfs"), dir)
	out, err := waiting.StdoutPipe()
	check(t, err)
	check(t, waiting.Start())
	end := func() { _ = waiting.Process.Kill(); _ = waiting.Wait() }
	t.Cleanup(end)
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	sweep("of a container that was created and waits", "cri-o", self, true, age, true)
	end()
	// The process has ended. A check finds this only after the minimum time since the last check.
	h.p.sweepFailedCreations()
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("checked twice within %v: %v", staging.MinOrphanAge, err)
	}
	sweep("of a container that does not exist", "cri-o", self, true, age, false)
	if h.p.containers.hasContainer(h.c.Id) {
		t.Error("the plugin still knows the container")
	}
}

// The runtime's process ID comes from the peer credentials of its socket.
func TestRuntimePIDOfAConnection(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	check(t, err)
	defer l.Close()
	conn, err := net.Dial("unix", socket)
	check(t, err)
	defer conn.Close()
	if got := runtimePID(conn); got != int32(os.Getpid()) {
		t.Errorf("the process is %d, want %d", got, os.Getpid())
	}
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if got := runtimePID(a); got != 0 {
		t.Errorf("connection that is no socket: process %d", got)
	}
}
