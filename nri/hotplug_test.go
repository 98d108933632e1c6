// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/deliver/staging"
)

// runningHost is a directory tree of a host with a plugin that binds sockets by mounts, and with a
// running container.
type runningHost struct {
	*reloadHost
	root string
	pod  *api.PodSandbox
	c    *api.Container
}

func newRunningHost(t *testing.T, config string, prepare ...func(root string)) *runningHost {
	root := t.TempDir()
	// Mounts below the root propagate, as on a host.
	err := unix.Mount("tmpfs", root, "tmpfs", 0, "size=1m")
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatalf("mount a tmpfs: %v", err)
	} else if err != nil {
		t.Skipf("mount a tmpfs: %v", err)
	}
	t.Cleanup(func() { testkit.Must(t, unix.Unmount(root, unix.MNT_DETACH)) })
	testkit.Must(t, unix.Mount("", root, "", unix.MS_SHARED, ""))
	for _, f := range prepare {
		f(root)
	}
	h := &runningHost{reloadHost: newReloadHostIn(t, root, config, false), root: root}
	if st := h.p.state.store.Load().Status(); st.Mode != staging.ModeMount {
		t.Fatalf("sockets are not bound by mounts: %s", st.Detail)
	}
	h.pod = &api.PodSandbox{Id: strings.Repeat("a", 64), Namespace: "ns", Name: "p"}
	h.c = &api.Container{Id: strings.Repeat("b", 64), PodSandboxId: h.pod.Id, Name: "c"}
	return h
}

// writeInfo writes the device-info file of an interface.
func (h *runningHost) writeInfo(ifName, mode, path string) string {
	h.t.Helper()
	file := filepath.Join(h.root, "var/run/k8s.cni.cncf.io/devinfo/cni", "ns-"+ifName+"-"+h.pod.Id+"_"+ifName)
	testkit.Must(h.t, os.MkdirAll(filepath.Dir(file), 0o755))
	const vhostUser = `{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":%q,"path":%q}}`
	testkit.Must(h.t, os.WriteFile(file, fmt.Appendf(nil, vhostUser, mode, path), 0o644))
	return file
}

func (h *runningHost) listen(path string) {
	h.t.Helper()
	path = filepath.Join(h.root, path)
	testkit.Must(h.t, os.MkdirAll(filepath.Dir(path), 0o755))
	l, err := net.Listen("unix", path)
	testkit.Must(h.t, err)
	h.t.Cleanup(func() { l.Close() })
}

// create creates the container.
func (h *runningHost) create() *api.ContainerAdjustment {
	h.t.Helper()
	adjust, _, err := h.p.CreateContainer(context.Background(), h.pod, h.c)
	testkit.Must(h.t, err)
	h.t.Cleanup(func() { testkit.Must(h.t, h.p.RemovePodSandbox(context.Background(), h.pod)) })
	return adjust
}

// listInterfaces returns the interfaces in the container's devices.json.
func (h *runningHost) listInterfaces() string {
	h.t.Helper()
	data, err := os.ReadFile(filepath.Join(h.root, "run/jackfield/containers", h.c.Id, "devices.json"))
	testkit.Must(h.t, err)
	var names []string
	for _, name := range []string{"net1", "net2", "net3", "net4"} {
		if strings.Contains(string(data), `"interface": "`+name+`"`) {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

// wantInterfaces waits until the container has the given interfaces.
func (h *runningHost) wantInterfaces(what, want string) {
	h.t.Helper()
	var got string
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		if got = h.listInterfaces(); got == want {
			return
		}
		if time.Now().After(end) {
			h.t.Fatalf("%s: the container has %q, want %q", what, got, want)
		}
	}
}

// updateFault returns why the last update of the container was incomplete.
func (h *runningHost) updateFault() string {
	h.p.hotplug.mu.Lock()
	defer h.p.hotplug.mu.Unlock()
	return h.p.hotplug.running[h.c.Id].updates.fault
}

const (
	runningConfig = "sockets: {staging: mount, roots: [/run/vsw]}\npolicy: {rules: [%s]}\n"
	runningRule   = `{name: r, for: {namespaces: [ns]}, allow: {sockets: ["/run/vsw/**"]}}`
)

// When a rule is removed, running containers keep their sockets, also when their networks are
// checked again and when other networks are added or removed.
func TestRemovedRuleKeepsSocketsOfRunningContainers(t *testing.T) {
	h := newRunningHost(t, fmt.Sprintf(runningConfig, runningRule))
	h.listen("run/vsw/1/s")
	h.listen("run/vsw/2/s")
	h.writeInfo("net1", "client", "/run/vsw/1/s")
	second := h.writeInfo("net2", "client", "/run/vsw/2/s")
	h.writeInfo("net3", "server", "/run/vsw/3/s")
	adjust := h.create()
	h.wantInterfaces("at its creation", "net1 net2 net3")
	h.replaceConfigFile(fmt.Sprintf(runningConfig, ""))
	h.waitForStatus("no rule", hasGeneration(2))

	// One network is removed. The removal shows that the others were checked.
	testkit.Must(t, os.Remove(second))
	h.wantInterfaces("without a rule", "net1 net3")
	// A new socket needs a rule, also at a path that was granted before.
	h.listen("run/vsw/4/s")
	h.writeInfo("net4", "client", "/run/vsw/4/s")
	h.writeInfo("net1", "client", "/run/vsw/4/s")
	h.wantInterfaces("another socket", "net3")
	_, err := h.p.Synchronize(context.Background(), []*api.PodSandbox{h.pod}, []*api.Container{
		{Id: h.c.Id, PodSandboxId: h.pod.Id, Name: "c", Mounts: adjust.GetMounts()}})
	testkit.Must(t, err)
	h.replaceConfigFile(fmt.Sprintf(runningConfig, runningRule))
	h.waitForStatus("the rule again", hasGeneration(3))
	h.p.hotplug.markAllDirty()
	h.wantInterfaces("with the rule again", "net1 net3 net4")
}

// An update of a running container that times out removes nothing from the container and is
// repeated.
func TestHotplugUpdateThatTimesOutIsRepeated(t *testing.T) {
	h := newRunningHost(t, fmt.Sprintf(runningConfig, runningRule))
	for _, n := range []string{"1", "2"} {
		h.listen("run/vsw/" + n + "/s")
	}
	h.writeInfo("net1", "client", "/run/vsw/1/s")
	h.create()
	h.wantInterfaces("at its creation", "net1")
	// Keep the container from hotplug, and wait until an update that began before has ended.
	hotplug := h.p.hotplug
	hotplug.watch("")
	hotplug.mu.Lock()
	running := hotplug.running[h.c.Id]
	delete(hotplug.running, h.c.Id)
	hotplug.mu.Unlock()
	for range 2 {
		hotplug.wake.send()
		if !testkit.Until(func() bool { return len(hotplug.wake) == 0 }) {
			t.Fatal("hotplug does not work")
		}
	}
	h.writeInfo("net2", "client", "/run/vsw/2/s")
	late, cancel := context.WithCancel(t.Context())
	cancel()
	hotplug.updateContainer(late, running)
	failures := h.p.counters.StagingFailed.Load()
	if got := h.listInterfaces(); got != "net1" || failures == 0 {
		t.Fatalf("after the update, with %d failures, the container has %q, want net1", failures, got)
	}
	st, err := os.Stat(filepath.Join(h.root, "run/jackfield/containers", h.c.Id, "net/net1/s"))
	if err != nil || st.Mode().Type() != os.ModeSocket {
		t.Errorf("the socket of net1 is not bound: %v", err)
	}
	hotplug.mu.Lock()
	hotplug.running[h.c.Id] = running
	hotplug.mu.Unlock()
	hotplug.updateContainer(late, running)
	h.wantInterfaces("in time again", "net1 net2")
}

// A source that cannot be read removes nothing from a running container. Its sockets are
// delivered when it can be read.
func TestUncheckedSocketsStayInContainer(t *testing.T) {
	h := newRunningHost(t, fmt.Sprintf(runningConfig, runningRule))
	for _, n := range []string{"1", "2", "3"} {
		h.listen("run/vsw/" + n + "/s")
	}
	h.writeInfo("net1", "client", "/run/vsw/1/s")
	second := h.writeInfo("net2", "client", "/run/vsw/2/s")
	h.create()
	h.wantInterfaces("at its creation", "net1 net2")
	// Multus' record of the sandbox is not a regular file.
	record := filepath.Join(h.root, "var/lib/cni/multus", h.pod.Id)
	testkit.Must(t, os.MkdirAll(record, 0o755))
	testkit.Must(t, os.Remove(second))
	h.writeInfo("net3", "client", "/run/vsw/3/s")
	h.waitForStatus("an update that could not read everything", func(ConfigStatus) bool { return h.updateFault() != "" })
	if got := h.listInterfaces(); got != "net1 net2" {
		t.Errorf("while Multus' record cannot be read the container has %q, want net1 net2", got)
	}
	testkit.Must(t, os.Remove(record))
	h.wantInterfaces("when it can be read", "net1 net3")
	// The whole directory of device-info is missing, as when it is unmounted.
	cni := filepath.Join(h.root, "var/run/k8s.cni.cncf.io/devinfo/cni")
	testkit.Must(t, os.Rename(cni, cni+".away"))
	h.p.hotplug.markAllDirty()
	h.waitForStatus("an update without the directory", func(ConfigStatus) bool { return h.updateFault() != "" })
	if got := h.listInterfaces(); got != "net1 net3" {
		t.Errorf("without the directory of device-info the container has %q, want net1 net3", got)
	}
}

// A directory of device-info that cannot be watched, because there is no free descriptor, is
// watched as soon as possible, and the networks that were added meanwhile are delivered.
func TestFailedHotplugWatchIsRepeated(t *testing.T) {
	h := newRunningHost(t, fmt.Sprintf(runningConfig, runningRule))
	h.listen("run/vsw/1/s")
	h.listen("run/vsw/2/s")
	h.writeInfo("net1", "client", "/run/vsw/1/s")
	h.create()
	h.wantInterfaces("at its creation", "net1")
	h.p.hotplug.watch("")
	var was unix.Rlimit
	testkit.Must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	testkit.Must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: was.Max}))
	h.p.hotplug.followConfig(h.p.config.core.Load().cfg)
	failed := testkit.Until(func() bool { return h.p.counters.StagingFailed.Load() > 0 })
	testkit.Must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &was))
	if !failed {
		t.Error("the failure is not counted")
	}
	h.writeInfo("net2", "client", "/run/vsw/2/s")
	h.wantInterfaces("when it can be watched", "net1 net2")
}

// The directory of the kubelet's plugins is unresponsive, and the container has metadata of a claim in it,
// which no rule lets it use. The runtime does not wait for the directory.
func TestUnresponsivePluginsDirectoryDelaysNoCreation(t *testing.T) {
	h := newRunningHost(t, fmt.Sprintf(runningConfig,
		`{name: r, for: {namespaces: [ns]}, allow: {sockets: ["/run/vsw/**"], networks: [ns/net1]}}`))
	h.listen("run/vsw/1/s")
	h.writeInfo("net1", "client", "/run/vsw/1/s")
	multus, plugins := filepath.Join(h.root, "var/lib/cni/multus"), filepath.Join(h.root, "var/lib/kubelet/plugins")
	testkit.Must(t, os.MkdirAll(multus, 0o755))
	testkit.Must(t, os.WriteFile(filepath.Join(multus, h.pod.Id), []byte(`[{"Name":"ns/net1","ifnameRequest":"net1"}]`), 0o600))
	h.c.Mounts = []*api.Mount{{
		Destination: "/var/run/kubernetes.io/dra-device-attributes/resourceclaims/c/r/driver-metadata.json",
		Source:      filepath.Join(plugins, "driver/dra-device-metadata/ns_c/r/metadata.json")}}
	testkit.Must(t, os.MkdirAll(plugins, 0o755))
	fuse, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err == nil {
		options := fmt.Sprintf("fd=%d,rootmode=40755,user_id=0,group_id=0,allow_other", fuse)
		err = unix.Mount("unresponsive", filepath.Dir(plugins), "fuse", unix.MS_NOSUID|unix.MS_NODEV, options)
	}
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatalf("mount FUSE: %v", err)
	} else if err != nil {
		t.Skipf("mount FUSE: %v", err)
	}
	defer unix.Close(fuse) // every call that waits ends
	created := make(chan error, 1)
	go func() {
		adjust, _, err := h.p.CreateContainer(context.Background(), h.pod, h.c)
		if err == nil && len(adjust.GetMounts()) == 0 {
			err = errors.New("the container got no socket")
		}
		created <- err
	}()
	select {
	case err := <-created:
		testkit.Must(t, err)
	case <-time.After(testkit.Hangs):
		t.Error("the runtime waits for the directory")
	}
}

// A network that comes while a container is created, after its networks were read, is delivered.
func TestNetworkThatComesDuringCreationIsDelivered(t *testing.T) {
	h := newRunningHost(t, fmt.Sprintf(runningConfig, runningRule))
	h.listen("run/vsw/1/s")
	h.listen("run/vsw/2/s")
	h.writeInfo("net1", "client", "/run/vsw/1/s")
	// Another container shows that an event was handled.
	h.create()
	h.wantInterfaces("at its creation", "net1")
	late := &api.Container{Id: strings.Repeat("c", 64), PodSandboxId: h.pod.Id, Name: "late"}
	made, err := h.prepare(context.Background(), h.pod, late)
	testkit.Must(t, err)
	h.writeInfo("net2", "client", "/run/vsw/2/s")
	h.wantInterfaces("the other container", "net1 net2")
	h.p.creator.record(made)
	h.c = late
	h.wantInterfaces("the late container", "net1 net2")
}

// A network whose name could only be guessed, because Multus' record could not be read, is delivered when the
// record can be read again. There is no event then.
func TestNetworkOfUnreadableRecordIsDeliveredLater(t *testing.T) {
	h := newRunningHost(t, fmt.Sprintf(runningConfig,
		`{name: r, for: {namespaces: [ns]}, allow: {sockets: ["/run/vsw/**"], networks: [ns/one, ns/two]}}`))
	h.listen("run/vsw/1/s")
	h.listen("run/vsw/2/s")
	record := filepath.Join(h.root, "var/lib/cni/multus", h.pod.Id)
	testkit.Must(t, os.MkdirAll(filepath.Dir(record), 0o755))
	first := `{"Name":"ns/one","ifnameRequest":"net1"}`
	testkit.Must(t, os.WriteFile(record, []byte("["+first+"]"), 0o600))
	h.writeInfo("net1", "client", "/run/vsw/1/s")
	h.create()
	h.wantInterfaces("at its creation", "net1")
	testkit.Must(t, os.Remove(record))
	testkit.Must(t, os.Mkdir(record, 0o755))
	h.writeInfo("net2", "client", "/run/vsw/2/s")
	h.waitForStatus("an update that could not read everything", func(ConfigStatus) bool { return h.updateFault() != "" })
	testkit.Must(t, os.Remove(record))
	testkit.Must(t, os.WriteFile(record, []byte("["+first+`,{"Name":"ns/two","ifnameRequest":"net2"}]`), 0o600))
	h.wantInterfaces("when the record can be read", "net1 net2")
}

// Containers are updated at the same time, so that one whose update waits delays no other.
func TestContainersAreUpdatedAtTheSameTime(t *testing.T) {
	var others sync.WaitGroup
	others.Add(2)
	both := make(chan struct{})
	go func() { others.Wait(); close(both) }()
	updateAll([]*runningContainer{{}, {}}, func(*runningContainer) {
		others.Done()
		select {
		case <-both:
		case <-time.After(testkit.Hangs):
			t.Error("an update waits for another one")
		}
	})
}
