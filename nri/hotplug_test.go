// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/staging"
)

// runningHost is a plugin on a host of its own, whose sockets are bound by mounts, and a
// container that runs.
type runningHost struct {
	*reloadHost
	root string
	pod  *api.PodSandbox
	c    *api.Container
}

func newRunningHost(t *testing.T, config string, prepare ...func(root string)) *runningHost {
	root := t.TempDir()
	// Mounts below it propagate, as on a host.
	err := unix.Mount("tmpfs", root, "tmpfs", 0, "size=1m")
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatalf("mount a tmpfs: %v", err)
	} else if err != nil {
		t.Skipf("mount a tmpfs: %v", err)
	}
	t.Cleanup(func() { check(t, unix.Unmount(root, unix.MNT_DETACH)) })
	check(t, unix.Mount("", root, "", unix.MS_SHARED, ""))
	for _, f := range prepare {
		f(root)
	}
	h := &runningHost{reloadHost: newReloadHostIn(t, root, config, false), root: root}
	if st := h.p.core.Load().store.Status(); st.Mode != staging.Mounts {
		t.Fatalf("sockets are not bound here: %s", st.Reason)
	}
	h.pod = &api.PodSandbox{Id: strings.Repeat("a", 64), Namespace: "ns", Name: "p"}
	h.c = &api.Container{Id: strings.Repeat("b", 64), PodSandboxId: h.pod.Id, Name: "c"}
	return h
}

// info writes the device-info file of an interface.
func (h *runningHost) info(ifName, mode, path string) string {
	h.t.Helper()
	file := filepath.Join(h.root, "var/run/k8s.cni.cncf.io/devinfo/cni", "ns-"+ifName+"-"+h.pod.Id+"_"+ifName)
	check(h.t, os.MkdirAll(filepath.Dir(file), 0o755))
	check(h.t, os.WriteFile(file, fmt.Appendf(nil, `{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":%q,"path":%q}}`, mode, path), 0o644))
	return file
}

func (h *runningHost) listen(path string) {
	h.t.Helper()
	path = filepath.Join(h.root, path)
	check(h.t, os.MkdirAll(filepath.Dir(path), 0o755))
	l, err := net.Listen("unix", path)
	check(h.t, err)
	h.t.Cleanup(func() { l.Close() })
}

// create creates the container.
func (h *runningHost) create() *api.ContainerAdjustment {
	h.t.Helper()
	adjust, _, err := h.p.CreateContainer(context.Background(), h.pod, h.c)
	check(h.t, err)
	h.t.Cleanup(func() { check(h.t, h.p.RemovePodSandbox(context.Background(), h.pod)) })
	return adjust
}

// view is the interfaces in the container's devices.json.
func (h *runningHost) view() string {
	h.t.Helper()
	data, err := os.ReadFile(filepath.Join(h.root, "run/jackfield/containers", h.c.Id, "devices.json"))
	check(h.t, err)
	var names []string
	for _, name := range []string{"net1", "net2", "net3", "net4"} {
		if strings.Contains(string(data), `"interface": "`+name+`"`) {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

// has waits until the container has some interfaces.
func (h *runningHost) has(what, want string) {
	h.t.Helper()
	var got string
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		if got = h.view(); got == want {
			return
		}
		if time.Now().After(end) {
			h.t.Fatalf("%s: the container has %q, want %q", what, got, want)
		}
	}
}

const (
	runningConfig = "sockets: {staging: mount, roots: [/run/vsw]}\npolicy: {rules: [%s]}\n"
	runningRule   = `{name: r, for: {namespaces: [ns]}, allow: {sockets: ["/run/vsw/**"]}}`
)

// A rule that is taken away takes nothing from containers that run: neither when their
// networks are looked at again, nor when another of them comes or goes.
func TestARuleThatIsTakenAwayTakesNothingFromRunningContainers(t *testing.T) {
	h := newRunningHost(t, fmt.Sprintf(runningConfig, runningRule))
	h.listen("run/vsw/1/s")
	h.listen("run/vsw/2/s")
	h.info("net1", "client", "/run/vsw/1/s")
	second := h.info("net2", "client", "/run/vsw/2/s")
	h.info("net3", "server", "/run/vsw/3/s")
	adjust := h.create()
	h.has("at its creation", "net1 net2 net3")
	h.rename(fmt.Sprintf(runningConfig, ""))
	h.wait("no rule", generation(2))

	// One goes: that it is gone shows that the others were looked at.
	check(t, os.Remove(second))
	h.has("without a rule", "net1 net3")
	// What comes now needs a rule, also at a place that was granted.
	h.listen("run/vsw/4/s")
	h.info("net4", "client", "/run/vsw/4/s")
	h.info("net1", "client", "/run/vsw/4/s")
	h.has("another socket", "net3")
	_, err := h.p.Synchronize(context.Background(), []*api.PodSandbox{h.pod}, []*api.Container{
		{Id: h.c.Id, PodSandboxId: h.pod.Id, Name: "c", Mounts: adjust.GetMounts()}})
	check(t, err)
	h.rename(fmt.Sprintf(runningConfig, runningRule))
	h.wait("the rule again", generation(3))
	h.p.hotplug.changed("")
	h.has("with the rule again", "net1 net3 net4")
}

// A pass over a running container that runs out of time takes nothing from the container
// and is repeated by itself.
func TestAHotPlugPassThatRunsOutOfTimeIsRepeated(t *testing.T) {
	h := newRunningHost(t, fmt.Sprintf(runningConfig, runningRule))
	for _, n := range []string{"1", "2"} {
		h.listen("run/vsw/" + n + "/s")
	}
	h.info("net1", "client", "/run/vsw/1/s")
	h.create()
	h.has("at its creation", "net1")
	h.p.hotplug.budget.Store(1)
	h.info("net2", "client", "/run/vsw/2/s")
	h.wait("a pass that runs out of time", func(ConfigStatus) bool { return h.p.counters.StagingFailed.Load() > 0 || h.view() != "net1" })
	if got := h.view(); got != "net1" {
		t.Fatalf("after the pass the container has %q, want net1", got)
	}
	if st, err := os.Stat(filepath.Join(h.root, "run/jackfield/containers", h.c.Id, "net/net1/s")); err != nil || st.Mode().Type() != os.ModeSocket {
		t.Errorf("the socket of net1 is not bound: %v", err)
	}
	h.p.hotplug.budget.Store(int64(hotplugBudget))
	h.has("in time again", "net1 net2")
}

// A source that cannot be read takes nothing from a running container, and what it brings
// comes when it can be read.
func TestWhatCannotBeCheckedStaysInTheContainer(t *testing.T) {
	h := newRunningHost(t, fmt.Sprintf(runningConfig, runningRule))
	for _, n := range []string{"1", "2", "3"} {
		h.listen("run/vsw/" + n + "/s")
	}
	h.info("net1", "client", "/run/vsw/1/s")
	second := h.info("net2", "client", "/run/vsw/2/s")
	h.create()
	h.has("at its creation", "net1 net2")
	// Multus' record of the sandbox is no regular file.
	record := filepath.Join(h.root, "var/lib/cni/multus", h.pod.Id)
	check(t, os.MkdirAll(record, 0o755))
	check(t, os.Remove(second))
	h.info("net3", "client", "/run/vsw/3/s")
	h.wait("a pass that could not read everything", func(ConfigStatus) bool {
		h.p.hotplug.mu.Lock()
		defer h.p.hotplug.mu.Unlock()
		return h.p.hotplug.retries[h.c.Id] != nil
	})
	if got := h.view(); got != "net1 net2" {
		t.Errorf("while Multus' record cannot be read the container has %q, want net1 net2", got)
	}
	check(t, os.Remove(record))
	h.has("when it can be read", "net1 net3")
	// The whole directory of device-info goes, as when it is unmounted.
	cni := filepath.Join(h.root, "var/run/k8s.cni.cncf.io/devinfo/cni")
	check(t, os.Rename(cni, cni+".away"))
	h.p.hotplug.changed("")
	h.wait("a pass without the directory", func(ConfigStatus) bool {
		h.p.hotplug.mu.Lock()
		defer h.p.hotplug.mu.Unlock()
		return h.p.hotplug.retries[h.c.Id] != nil
	})
	if got := h.view(); got != "net1 net3" {
		t.Errorf("without the directory of device-info the container has %q, want net1 net3", got)
	}
}

// The directory of device-info that could not be watched, for want of a descriptor, is
// watched as soon as it can be, and what came meanwhile is delivered.
func TestAHotPlugWatchThatFailsIsRepeated(t *testing.T) {
	h := newRunningHost(t, fmt.Sprintf(runningConfig, runningRule))
	h.listen("run/vsw/1/s")
	h.listen("run/vsw/2/s")
	h.info("net1", "client", "/run/vsw/1/s")
	h.create()
	h.has("at its creation", "net1")
	h.p.hotplug.watch(&core{cfg: h.p.core.Load().cfg}, newWaits()) // nothing is watched
	var was unix.Rlimit
	check(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	check(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: was.Max}))
	h.p.hotplug.watch(h.p.core.Load(), newWaits())
	check(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &was))
	if h.p.counters.StagingFailed.Load() == 0 {
		t.Error("the failure is not counted")
	}
	h.info("net2", "client", "/run/vsw/2/s")
	h.has("when it can be watched", "net1 net2")
}
