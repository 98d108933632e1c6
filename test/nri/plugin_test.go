// SPDX-License-Identifier: Apache-2.0

package nritest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	rspec "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/report/telemetry"
	"github.com/jackfield/jackfield/nri"
	nritest "github.com/jackfield/jackfield/test/nri"
	"github.com/jackfield/jackfield/test/ocivalid"
	"github.com/jackfield/jackfield/test/vswitch"
)

const policyYAML = `
sockets: {roots: [/var/run/vsw]}
policy:
  rules:
    - name: dpdk-tenants
      for:   {namespaces: ["dpdk-*"]}
      allow:
        cdi:     ["vendor.com/net=*"]
        sockets: ["/var/run/vsw/**"]
        devices: ["/dev/vfio/*"]
`

// node is a host of its own below a directory, with the plugin connected to a
// runtime.
type node struct {
	t       testing.TB
	dir     string
	runtime *nritest.Runtime
	plugin  *nri.Plugin
	log     *syncBuffer
	stop    func() // ends the plugin; it is called at the end, too
}

type syncBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func newNode(t testing.TB, yaml string, opts nritest.Options) *node {
	t.Helper()
	return preparedNode(t, yaml, opts, func(*node) {})
}

// preparedNode is newNode on a host that was prepared before the plugin starts.
func preparedNode(t testing.TB, yaml string, opts nritest.Options, prepare func(n *node)) *node {
	t.Helper()
	// Sockets need a short path.
	dir, err := os.MkdirTemp("", "jf")
	check(t, err)
	t.Cleanup(func() { check(t, os.RemoveAll(dir)) })
	n := &node{t: t, dir: dir, log: &syncBuffer{}}
	for _, d := range []string{"etc/cdi", "run/cdi", "run/vsw", "run/k8s.cni.cncf.io/devinfo/cni", "run/k8s.cni.cncf.io/devinfo/dp", "dev", "var"} {
		check(t, os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	check(t, os.Symlink("../run", filepath.Join(dir, "var/run")))
	prepare(n)
	host, err := hostfs.New(dir)
	check(t, err)
	cfg, err := config.Parse([]byte(yaml), "/etc/jackfield/config.yaml")
	check(t, err)
	n.runtime = nritest.New(t, opts)
	log := logrus.New()
	log.SetOutput(io.MultiWriter(n.log))
	n.plugin, err = nri.New(nri.Options{Host: host, Config: cfg, ConfigGiven: true, Socket: n.runtime.SocketPath()}, log)
	check(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.plugin.Run(ctx) }()
	n.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the plugin ended with %v", err)
		}
		check(t, n.plugin.Close())
		n.runtime.Gone("50-jackfield")
	})
	t.Cleanup(func() {
		n.stop()
		if t.Failed() {
			t.Log(n.log.String())
		}
	})
	n.wait()
	return n
}

func (n *node) wait() {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Hangs)
	defer cancel()
	check(n.t, n.runtime.WaitPlugin(ctx, "50-jackfield"))
}

func (n *node) path(host string) string { return filepath.Join(n.dir, host) }

func (n *node) write(host, content string) {
	n.t.Helper()
	check(n.t, os.MkdirAll(filepath.Dir(n.path(host)), 0o755))
	check(n.t, os.WriteFile(n.path(host), []byte(content), 0o644))
}

// devinfo writes a device-info file as Multus names it.
func (n *node) devinfo(pod *api.PodSandbox, nad, iface, content string) {
	n.t.Helper()
	n.write(fmt.Sprintf("/run/k8s.cni.cncf.io/devinfo/cni/%s-%s-%s_%s", pod.Namespace, nad, pod.Id, iface), content)
}

func (n *node) listen(kind vswitch.Kind, host string) *vswitch.Server {
	n.t.Helper()
	check(n.t, os.MkdirAll(filepath.Dir(n.path(host)), 0o755))
	s, err := vswitch.Listen(kind, n.path(host), vswitch.Greeting(host))
	check(n.t, err)
	n.t.Cleanup(func() { check(n.t, s.Close()) })
	return s
}

func (n *node) pod(namespace string, annotations map[string]string) *api.PodSandbox {
	n.t.Helper()
	pod := nritest.NewPod(namespace, "p", annotations)
	check(n.t, n.runtime.RunPodSandbox(context.Background(), pod))
	return pod
}

func (n *node) create(pod *api.PodSandbox, change func(*api.Container)) (*nritest.Created, error) {
	ctr := &api.Container{Id: nritest.NewID(), PodSandboxId: pod.Id, Name: "c", Args: []string{"/bin/true"}, Env: []string{"PATH=/bin"},
		Linux: &api.LinuxContainer{}}
	if change != nil {
		change(ctr)
	}
	created, err := n.runtime.CreateContainer(context.Background(), pod, ctr)
	if err == nil {
		ocivalid.Check(n.t, created.Before, created.Spec)
	}
	return created, err
}

func (n *node) mustCreate(pod *api.PodSandbox) *nritest.Created {
	n.t.Helper()
	c, err := n.create(pod, nil)
	check(n.t, err)
	return c
}

const cdiSpec = `{"cdiVersion": "0.6.0", "kind": "vendor.com/net",
"containerEdits": {"env": ["VENDOR=1"]},
"devices": [
 {"name": "a", "containerEdits": {"env": ["DEV=a"], "deviceNodes": [{"path": "/dev/net-a", "type": "c", "major": 1, "minor": 5}],
  "mounts": [{"hostPath": "/run/cdi", "containerPath": "/opt/vendor/cdi", "options": ["ro", "bind"]}],
  "hooks": [{"hookName": "createRuntime", "path": "/bin/true", "args": ["true"], "timeout": 3}]}},
 {"name": "b", "containerEdits": {"env": ["DEV=b"]}}]}`

func device(s *rspec.Spec, path string) *rspec.LinuxDevice {
	for i := range s.Linux.Devices {
		if s.Linux.Devices[i].Path == path {
			return &s.Linux.Devices[i]
		}
	}
	return nil
}

func mount(s *rspec.Spec, dst string) *rspec.Mount {
	for i := range s.Mounts {
		if s.Mounts[i].Destination == dst {
			return &s.Mounts[i]
		}
	}
	return nil
}

func TestCDIDeviceReachesTheSpec(t *testing.T) {
	n := newNode(t, policyYAML, nritest.Options{})
	n.write("/etc/cdi/vendor.json", cdiSpec)
	pod := n.pod("dpdk-1", map[string]string{"devices.jackfield.dev": "vendor.com/net=a"})
	c := n.mustCreate(pod)
	for _, e := range []string{"VENDOR=1", "DEV=a"} {
		if !slices.Contains(c.Spec.Process.Env, e) {
			t.Errorf("env %q is missing in %q", e, c.Spec.Process.Env)
		}
	}
	if d := device(c.Spec, "/dev/net-a"); d == nil || d.Major != 1 || d.Minor != 5 {
		t.Errorf("device is %+v", d)
	}
	if m := mount(c.Spec, "/opt/vendor/cdi"); m == nil || m.Source != "/run/cdi" {
		t.Errorf("mount is %+v", m)
	}
	if c.Spec.Hooks == nil || len(c.Spec.Hooks.CreateRuntime) != 1 || *c.Spec.Hooks.CreateRuntime[0].Timeout != 3 {
		t.Errorf("hooks are %+v", c.Spec.Hooks)
	}
}

func TestSocketsReachTheSpec(t *testing.T) {
	n := newNode(t, policyYAML, nritest.Options{})
	pod := nritest.NewPod("dpdk-1", "p", map[string]string{"k8s.v1.cni.cncf.io/networks": "vhost-net,memif-net,app-net"})
	n.listen(vswitch.VhostUser, "/run/vsw/p1/vhost.sock")
	n.listen(vswitch.Memif, "/run/vsw/p2/memif.sock")
	n.devinfo(pod, "vhost-net", "net1", `{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":"client","path":"/var/run/vsw/p1/vhost.sock"}}`)
	n.devinfo(pod, "memif-net", "net2", `{"type":"memif","version":"1.1.0","memif":{"role":"slave","mode":"ethernet","path":"/var/run/vsw/p2/memif.sock"}}`)
	n.devinfo(pod, "app-net", "net3", `{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":"server","path":"/var/run/vsw/p3/x/app.sock"}}`)
	check(t, n.runtime.RunPodSandbox(context.Background(), pod))
	c := n.mustCreate(pod)
	for dst, access := range map[string]string{
		"/var/run/jackfield": "ro", "/var/run/jackfield/net/net1": "ro", "/var/run/jackfield/net/net2": "ro", "/var/run/jackfield/net/net3": "rw",
		"/var/run/vsw/p1": "ro", "/var/run/vsw/p2": "ro", "/var/run/vsw/p3/x": "rw",
	} {
		m := mount(c.Spec, dst)
		if m == nil {
			t.Errorf("no mount at %s", dst)
			continue
		}
		if !slices.Contains(m.Options, access) {
			t.Errorf("mount at %s has options %v, want %s", dst, m.Options, access)
		}
		if st, err := os.Stat(m.Source); err != nil || !st.IsDir() {
			t.Errorf("mount at %s comes from %s: %v", dst, m.Source, err)
		}
	}
	env := map[string]string{}
	for _, kv := range c.Spec.Process.Env {
		k, v, _ := strings.Cut(kv, "=")
		env[k] = v
	}
	for k, want := range map[string]string{
		"JACKFIELD_DEVICES_FILE": "/var/run/jackfield/devices.json",
		"JACKFIELD_NET1_TYPE":    "vhost-user",
		"JACKFIELD_NET1_SOCKET":  "/var/run/jackfield/net/net1/vhost.sock",
		"JACKFIELD_NET1_EAL":     "--vdev=net_virtio_user0,path=/var/run/jackfield/net/net1/vhost.sock",
		"JACKFIELD_NET2_EAL":     "--vdev=net_memif0,role=client,id=0,socket=/var/run/jackfield/net/net2/memif.sock,socket-abstract=no",
		"JACKFIELD_NET3_EAL":     "--vdev=net_virtio_user1,path=/var/run/jackfield/net/net3/app.sock,server=1",
	} {
		if env[k] != want {
			t.Errorf("%s=%q, want %q", k, env[k], want)
		}
	}
	data, err := os.ReadFile(filepath.Join(mount(c.Spec, "/var/run/jackfield").Source, "devices.json"))
	check(t, err)
	var view []struct {
		Name, Interface string
		DeviceInfo      struct {
			Type      string
			VhostUser struct{ Path string } `json:"vhost-user"`
		} `json:"device-info"`
	}
	check(t, json.Unmarshal(data, &view))
	if len(view) != 3 || view[0].Name != "dpdk-1/vhost-net" || view[0].DeviceInfo.VhostUser.Path != "/var/run/jackfield/net/net1/vhost.sock" {
		t.Errorf("devices.json is %s", data)
	}
	if _, err := os.Stat(n.path("/run/vsw/p3/x")); err != nil {
		t.Errorf("the application's directory: %v", err)
	}
	check(t, n.runtime.RemoveContainer(context.Background(), pod, c.Container))
	check(t, n.runtime.RemovePodSandbox(context.Background(), pod))
	n.nothingLeft()
	if _, err := os.Stat(n.path("/run/vsw/p3")); !os.IsNotExist(err) {
		t.Errorf("the application's directory is left: %v", err)
	}
	if _, err := os.Stat(n.path("/run/vsw/p1/vhost.sock")); err != nil {
		t.Errorf("the vswitch's own socket is gone: %v", err)
	}
}

// nothingLeft checks the state directory.
func (n *node) nothingLeft() {
	n.t.Helper()
	for _, d := range []string{"containers", "sandboxes", "claims"} {
		entries, err := os.ReadDir(n.path("/run/jackfield/" + d))
		check(n.t, err)
		for _, e := range entries {
			n.t.Errorf("left in the state directory: %s/%s", d, e.Name())
		}
	}
}

func TestPodWithoutRequestsIsUntouched(t *testing.T) {
	n := newNode(t, policyYAML, nritest.Options{})
	n.write("/etc/cdi/vendor.json", cdiSpec)
	c := n.mustCreate(n.pod("dpdk-1", map[string]string{"other": "annotation"}))
	before, _ := json.Marshal(c.Before)
	after, _ := json.Marshal(c.Spec)
	if string(before) != string(after) {
		t.Errorf("the spec changed:\n%s\n%s", before, after)
	}
	if strings.Contains(n.log.String(), "container=c") {
		t.Errorf("there is a log line about it:\n%s", n.log.String())
	}
	n.nothingLeft()
}

func TestRefusalsNameRequestRuleAndRemedy(t *testing.T) {
	const vhost = `{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":"client","path":%q}}`
	for _, tc := range []struct {
		name, namespace string
		annotations     map[string]string
		devinfo         string
		want            []string
	}{
		{name: "unknown CDI device", namespace: "dpdk-1", annotations: map[string]string{"devices.jackfield.dev": "vendor.com/net=c"},
			want: []string{`"vendor.com/net=c"`, "dpdk-1/p/c", "devices.jackfield.dev", "check the name; the node's administrator can run `jackfield devices`"}},
		{name: "no rule for the namespace", namespace: "other", annotations: map[string]string{"devices.jackfield.dev": "vendor.com/net=a"},
			want: []string{"vendor.com/net=a", "other", "dpdk-tenants", "/etc/jackfield/config.yaml", "namespaces"}},
		{name: "requested network without a rule", namespace: "other", annotations: map[string]string{"networks.jackfield.dev": "net1"},
			devinfo: fmt.Sprintf(vhost, "/var/run/vsw/p1/vhost.sock"),
			want:    []string{"/var/run/vsw/p1/vhost.sock", "other", "/etc/jackfield/config.yaml"}},
		{name: "bad BDF", namespace: "dpdk-1", devinfo: `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:02:01:6"}}`,
			want: []string{"net1", "pci.pci-address", "0000:02:01:6", "3.1.3.1"}},
		{name: "path outside the roots", namespace: "dpdk-1", devinfo: fmt.Sprintf(vhost, "/etc/shadow"),
			want: []string{"net1", "/etc/shadow", "sockets.roots"}},
		{name: "symlink out of a root", namespace: "dpdk-1", devinfo: fmt.Sprintf(vhost, "/var/run/vsw/link/x.sock"),
			want: []string{"net1", "vhost-user.path", "symlink"}},
		{name: "path too long", namespace: "dpdk-1", devinfo: fmt.Sprintf(vhost, "/var/run/vsw/"+strings.Repeat("x", 60)+"/"+strings.Repeat("y", 60)),
			want: []string{"net1", "vhost-user.path", "107"}},
		{name: "no socket", namespace: "dpdk-1", devinfo: fmt.Sprintf(vhost, "/var/run/vsw/p9/none.sock"),
			want: []string{"net1", "/run/vsw/p9/none.sock", "the vswitch has not created this socket yet"}},
		{name: "not a socket", namespace: "dpdk-1", devinfo: fmt.Sprintf(vhost, "/var/run/vsw/p1/file"),
			want: []string{"net1", "regular file", "socket"}},
		{name: "the application's socket in the root itself", namespace: "dpdk-1", devinfo: strings.Replace(fmt.Sprintf(vhost, "/var/run/vsw/shared.sock"), `"client"`, `"server"`, 1),
			want: []string{"net1", "/var/run/vsw", "directory of its own"}},
		{name: "a network that is not there", namespace: "dpdk-1", annotations: map[string]string{"networks.jackfield.dev": "net7"},
			want: []string{`"net7"`, "networks.jackfield.dev", "devinfo/cni"}},
		{name: "a mistyped key", namespace: "dpdk-1", annotations: map[string]string{"device.jackfield.dev": "vendor.com/net=a"},
			want: []string{"device.jackfield.dev", "devices.jackfield.dev"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNode(t, policyYAML, nritest.Options{})
			n.write("/etc/cdi/vendor.json", cdiSpec)
			n.write("/run/vsw/p1/file", "")
			n.listen(vswitch.VhostUser, "/run/vsw/p1/vhost.sock")
			n.listen(vswitch.VhostUser, "/run/vsw/shared.sock")
			n.listen(vswitch.VhostUser, "/etc/outside/x.sock")
			check(t, os.Symlink("/etc/outside", n.path("/run/vsw/link")))
			pod := nritest.NewPod(tc.namespace, "p", tc.annotations)
			if tc.devinfo != "" {
				n.devinfo(pod, "nad", "net1", tc.devinfo)
			}
			check(t, n.runtime.RunPodSandbox(context.Background(), pod))
			_, err := n.create(pod, nil)
			if err == nil {
				t.Fatal("the container was created")
			}
			t.Log(err)
			for _, w := range tc.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("the error does not name %q: %v", w, err)
				}
			}
			check(t, n.runtime.RemovePodSandbox(context.Background(), pod))
			n.nothingLeft()
		})
	}
}

func TestUngrantedAttachmentIsUnmanaged(t *testing.T) {
	n := newNode(t, policyYAML, nritest.Options{})
	pod := nritest.NewPod("other", "p", nil)
	n.devinfo(pod, "nad", "net1", `{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":"client","path":"/elsewhere/vhost.sock"}}`)
	n.devinfo(pod, "nad", "net2", `nonsense`)
	check(t, n.runtime.RunPodSandbox(context.Background(), pod))
	c := n.mustCreate(pod)
	if len(c.Spec.Mounts) != len(c.Before.Mounts) {
		t.Errorf("mounts were added: %v", c.Spec.Mounts)
	}
	if got := n.plugin.Counters().Requests(telemetry.Unmanaged); got != 2 {
		t.Errorf("%d attachments counted as unmanaged, want 2", got)
	}
	eventually(t, "unmanaged attachments are logged", func() bool { return strings.Contains(n.log.String(), "unmanaged") })
}

func TestOptionalRequestsAreSkippedWhole(t *testing.T) {
	n := newNode(t, policyYAML, nritest.Options{})
	n.write("/etc/cdi/vendor.json", cdiSpec)
	n.write("/etc/cdi/half.json", `{"cdiVersion":"0.6.0","kind":"vendor.com/net","devices":[{"name":"half","containerEdits":{"env":["HALF=1"],
	 "deviceNodes":[{"path":"/dev/missing"}]}}]}`)
	pod := n.pod("dpdk-1", map[string]string{"devices.jackfield.dev": `[vendor.com/net=b, {device: vendor.com/net=half, optional: true}]`})
	c := n.mustCreate(pod)
	if slices.Contains(c.Spec.Process.Env, "HALF=1") {
		t.Error("half of the optional device was delivered")
	}
	if !slices.Contains(c.Spec.Process.Env, "DEV=b") {
		t.Error("the other device is missing")
	}
}

// An optional device with an edit that NRI cannot carry is skipped whole. A device that is not optional
// fails the container.
func TestOptionalRequestsThatNRICannotApply(t *testing.T) {
	n := newNode(t, policyYAML, nritest.Options{})
	n.write("/etc/cdi/vendor.json", cdiSpec)
	n.write("/etc/cdi/odd.json", `{"cdiVersion":"0.7.0","kind":"vendor.com/net","containerEdits":{"env":["ODD=1"]},"devices":[
	 {"name":"group","containerEdits":{"env":["GROUP=1"],"additionalGids":[7]}},
	 {"name":"fifo","containerEdits":{"env":["FIFO=1"],"deviceNodes":[{"path":"/dev/ff","type":"p"}]}}]}`)
	for _, device := range []string{"group", "fifo"} {
		pod := n.pod("dpdk-1", map[string]string{"devices.jackfield.dev": `[{device: vendor.com/net=` + device + `, optional: true}, vendor.com/net=b]`})
		c := n.mustCreate(pod)
		for _, kv := range c.Spec.Process.Env {
			if kv == "ODD=1" || kv == strings.ToUpper(device)+"=1" {
				t.Errorf("%s: half of the optional device was delivered: %s", device, kv)
			}
		}
		if !slices.Contains(c.Spec.Process.Env, "DEV=b") {
			t.Errorf("%s: the other device is missing", device)
		}
		pod = n.pod("dpdk-1", map[string]string{"devices.jackfield.dev": "vendor.com/net=" + device})
		if _, err := n.create(pod, nil); err == nil || !strings.Contains(err.Error(), "odd.json") {
			t.Errorf("%s: %v", device, err)
		}
	}
}

func TestPresentEditsAreNotInjectedTwice(t *testing.T) {
	n := newNode(t, policyYAML, nritest.Options{})
	n.write("/etc/cdi/vendor.json", cdiSpec)
	pod := n.pod("dpdk-1", map[string]string{"devices.jackfield.dev": "vendor.com/net=a"})
	c, err := n.create(pod, func(c *api.Container) {
		c.Env = append(c.Env, "VENDOR=1", "DEV=a")
		c.Mounts = []*api.Mount{{Destination: "/opt/vendor/cdi", Source: "/run/cdi", Type: "bind", Options: []string{"ro"}}}
		c.Hooks = &api.Hooks{CreateRuntime: []*api.Hook{{Path: "/bin/true", Args: []string{"true"}}}}
		c.Linux.Devices = []*api.LinuxDevice{{Path: "/dev/net-a", Type: "c", Major: 1, Minor: 5}}
	})
	check(t, err)
	if a := c.Adjust; a != nil && (len(a.Env)+len(a.Mounts)+len(a.GetLinux().GetDevices()) > 0 || len(a.GetHooks().GetCreateRuntime()) > 0) {
		t.Errorf("adjusted all the same: %v", a)
	}
	// Another device at the same path is a conflict that names both.
	_, err = n.create(pod, func(c *api.Container) {
		c.Linux.Devices = []*api.LinuxDevice{{Path: "/dev/net-a", Type: "c", Major: 9, Minor: 9}}
	})
	if err == nil || !strings.Contains(err.Error(), "9:9") || !strings.Contains(err.Error(), "vendor.json") {
		t.Errorf("a conflict gave %v", err)
	}
}

func TestReconnectAfterTheRuntimeRestarts(t *testing.T) {
	n := newNode(t, policyYAML, nritest.Options{})
	n.write("/etc/cdi/vendor.json", cdiSpec)
	for range 5 {
		check(t, n.runtime.Restart())
		n.wait()
		c := n.mustCreate(n.pod("dpdk-1", map[string]string{"devices.jackfield.dev": "vendor.com/net=b"}))
		if !slices.Contains(c.Spec.Process.Env, "DEV=b") {
			t.Fatal("the plugin is connected and does nothing")
		}
	}
}

// The plugin reconnects at once to a runtime that was down for seconds, because a container that is
// created before has no devices. A doubling delay between attempts would miss the limit in every
// round. The limit is far above the 25 ms between two attempts, for busy machines, and one round of
// three has to keep it.
func TestReconnectAfterLongAbsence(t *testing.T) {
	const away, limit = 3300 * time.Millisecond, time.Second
	n := newNode(t, policyYAML, nritest.Options{})
	var took []time.Duration
	for range 3 {
		check(t, n.runtime.Suspend())
		// CRI-O leaves a socket behind that nobody listens at.
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		check(t, err)
		check(t, unix.Bind(fd, &unix.SockaddrUnix{Name: n.runtime.SocketPath()}))
		check(t, unix.Close(fd))
		time.Sleep(away)
		began := time.Now()
		check(t, n.runtime.Resume())
		n.wait()
		last := time.Since(began)
		if took = append(took, last); last < limit {
			return
		}
	}
	t.Errorf("the plugin was back after %v, want within %v once", took, limit)
}

func TestSynchronizeRemovesStateOfGoneContainers(t *testing.T) {
	n := newNode(t, policyYAML, nritest.Options{})
	pod := nritest.NewPod("dpdk-1", "p", nil)
	n.devinfo(pod, "app", "net1", `{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":"server","path":"/var/run/vsw/own/app.sock"}}`)
	check(t, n.runtime.RunPodSandbox(context.Background(), pod))
	c := n.mustCreate(pod)
	// The pod ends while the plugin is away.
	check(t, n.runtime.Suspend())
	n.runtime.Forget(c.Container.Id)
	n.runtime.Forget(pod.Id)
	check(t, n.runtime.Resume())
	n.wait()
	n.nothingLeft()
	if _, err := os.Stat(n.path("/run/vsw/own")); !os.IsNotExist(err) {
		t.Errorf("the socket directory is left: %v", err)
	}
}

func TestTwoPodsCannotShareSocketDirectory(t *testing.T) {
	n := newNode(t, policyYAML, nritest.Options{})
	const info = `{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":"server","path":"/var/run/vsw/own/app.sock"}}`
	var pods []*api.PodSandbox
	for range 2 {
		pod := nritest.NewPod("dpdk-1", "p", nil)
		n.devinfo(pod, "app", "net1", info)
		check(t, n.runtime.RunPodSandbox(context.Background(), pod))
		pods = append(pods, pod)
	}
	n.mustCreate(pods[0])
	_, err := n.create(pods[1], nil)
	if err == nil || !strings.Contains(err.Error(), pods[0].Id) {
		t.Errorf("the second pod got %v, want an error that names the first", err)
	}
	// A second container of the first pod shares it.
	n.mustCreate(pods[0])
	check(t, n.runtime.RemovePodSandbox(context.Background(), pods[0]))
	n.mustCreate(pods[1])
}

func TestHangingFileSystemDoesNotBlockRuntime(t *testing.T) {
	n := newNode(t, policyYAML, nritest.Options{})
	check(t, unix.Mkfifo(n.path("/etc/cdi/fifo.json"), 0o644))
	check(t, unix.Mkfifo(n.path("/run/k8s.cni.cncf.io/devinfo/cni/x-"+strings.Repeat("a", 64)+"_net1"), 0o644))
	n.write("/etc/cdi/vendor.json", cdiSpec)
	// An open of a FIFO waits for a writer, and there is none.
	start := time.Now()
	c := n.mustCreate(n.pod("dpdk-1", map[string]string{"devices.jackfield.dev": "vendor.com/net=b"}))
	if !slices.Contains(c.Spec.Process.Env, "DEV=b") || time.Since(start) > answer {
		t.Errorf("after %v: %v", time.Since(start), c.Spec.Process.Env)
	}
	pod := nritest.NewPod("dpdk-1", "p", nil)
	check(t, unix.Mkfifo(n.path("/run/k8s.cni.cncf.io/devinfo/cni/x-"+pod.Id+"_net1"), 0o644))
	check(t, n.runtime.RunPodSandbox(context.Background(), pod))
	if _, err := n.create(pod, nil); err == nil || !strings.Contains(err.Error(), "FIFO") {
		t.Errorf("device-info that is a FIFO gave %v", err)
	}
}
