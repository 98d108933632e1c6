// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/jackfield/jackfield/internal/base/testkit"
	nritest "github.com/jackfield/jackfield/test/nri"
	"github.com/jackfield/jackfield/test/parts"
	"github.com/jackfield/jackfield/test/vswitch"
)

// BenchmarkNRICreateContainer measures the round trip of CreateContainer through a real NRI socket,
// as the runtime sees it. Jackfield and its peer are separate processes and take turns. The
// figures x/noop and x/floor are the ratios.
//
// The no-op plugin subscribes to the same events and returns empty answers. The floor is a plugin that
// answers with Jackfield's adjustment from memory, and creates the same directories, files and
// mounts.
func BenchmarkNRICreateContainer(b *testing.B) {
	noop := newNRI(b)
	noop.start(b, "50-noop", build(b, "./nri/cmd/noop"), noop.runtime.SocketPath(), "50", "noop")
	node := newNRI(b)
	node.jackfield(b)
	annotations := map[string]string{"devices.jackfield.dev": "vendor.com/net=d0,vendor.com/net=d1,vendor.com/net=d2,vendor.com/net=d3"}
	full := node.container("dpdk-1", annotations)
	node.attach(b, full.pod)
	floor := node.floor(b, full, annotations)
	b.Run("nothing-asked", func(b *testing.B) {
		compare(b, node.container("dpdk-1", nil), noop.container("dpdk-1", nil), "noop")
	})
	b.Run("4-cdi-2-sockets", func(b *testing.B) { compare(b, full, floor, "floor") })
}

// floor starts the plugin that repeats what Jackfield answers and creates for a container.
func (n *nriNode) floor(b *testing.B, full *container, annotations map[string]string) *container {
	ctr := proto.CloneOf(full.ctr)
	adjust, err := full.runtime.Adjust(context.Background(), full.pod, ctr)
	testkit.Must(b, err)
	data, err := proto.Marshal(adjust)
	testkit.Must(b, err)
	steps := n.steps(b, full.pod.Id, ctr.Id)
	testkit.Must(b, full.runtime.RemoveContainer(context.Background(), full.pod, ctr))

	floor := newNRI(b)
	answer, list, dir := filepath.Join(floor.dir, "adjustment"), filepath.Join(floor.dir, "steps"), filepath.Join(floor.dir, "state")
	testkit.Must(b, os.WriteFile(answer, data, 0o600))
	testkit.Must(b, os.WriteFile(list, []byte(strings.Join(steps, "\n")), 0o600))
	testkit.Must(b, os.Mkdir(dir, 0o755))
	b.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	floor.start(b, "50-floor", build(b, "./nri/cmd/noop"), floor.runtime.SocketPath(), "50", "floor", answer, list, dir)
	return floor.container("dpdk-1", annotations)
}

// steps lists the directories, files and mounts that Jackfield created on the host for a
// container, in the input format of the no-op plugin.
func (n *nriNode) steps(b *testing.B, sandboxID, containerID string) []string {
	state := filepath.Join(n.dir, "state")
	info, err := os.ReadFile("/proc/self/mountinfo")
	testkit.Must(b, err)
	mounts := map[string]string{} // mount point to the path in its file system, or its type
	for line := range strings.Lines(string(info)) {
		f := strings.Fields(line)
		mounts[f[4]] = f[3]
		if slices.Contains(f[6:], "tmpfs") && f[3] == "/" {
			mounts[f[4]] = "tmpfs"
		}
	}
	var steps, binds []string
	walk := func(dir, as string) {
		testkit.Must(b, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			name := filepath.Join(as, strings.TrimPrefix(path, dir))
			from, mounted := mounts[path]
			switch {
			case mounted && from == "tmpfs":
				steps = append(steps, "dir "+name, "tmpfs "+name)
			case mounted:
				// The path in the mount's file system ends like the host path.
				at := strings.Index(from, "/vsw/")
				if at < 0 {
					return fmt.Errorf("%s is mounted from %s; want a socket below vsw", path, from)
				}
				steps = append(steps, "file "+name+" 0")
				binds = append(binds, "bind "+name+" "+n.dir+from[at:])
			case d.IsDir():
				steps = append(steps, "dir "+name)
			default:
				st, err := d.Info()
				if err != nil {
					return err
				}
				steps = append(steps, fmt.Sprintf("file %s %d", name, st.Size()))
			}
			return nil
		}))
	}
	steps = append(steps, "dir /")
	walk(filepath.Join(state, "containers", containerID), "staging")
	walk(filepath.Join(state, "sandboxes", sandboxID), "sandbox")
	return append(steps, binds...)
}

// BenchmarkNRIStaleDeviceInfo compares a node with 10,000 device-info files of removed sandboxes
// with an empty directory. The figure x/empty is the ratio.
func BenchmarkNRIStaleDeviceInfo(b *testing.B) {
	empty, stale := newNRI(b), newNRI(b)
	for i := range 10000 {
		dir := filepath.Join(stale.dir, "cni")
		testkit.Must(b, os.MkdirAll(dir, 0o755))
		testkit.Must(b, os.WriteFile(filepath.Join(dir, fmt.Sprintf("ns-nad-%s_net%d", nritest.NewID(), i%4)), []byte(staleInfo), 0o644))
	}
	empty.jackfield(b)
	stale.jackfield(b)
	both := func(attach bool) (ours, peer *container) {
		s, e := stale.container("dpdk-1", nil), empty.container("dpdk-1", nil)
		if attach {
			stale.attach(b, s.pod)
			empty.attach(b, e.pod)
		}
		return s, e
	}
	b.Run("nothing-asked", func(b *testing.B) { ours, peer := both(false); compare(b, ours, peer, "empty") })
	b.Run("2-sockets", func(b *testing.B) { ours, peer := both(true); compare(b, ours, peer, "empty") })
}

// BenchmarkNRIRefusals compares a container whose 1,024 named devices are refused with a container that is granted them, under
// 300 rules of 30 patterns with several stars. The figure x/granted is the ratio.
func BenchmarkNRIRefusals(b *testing.B) {
	const names, rules, patterns = 1024, 300, 30
	node := newNRI(b)
	var devices, list []string
	for i := range names {
		devices = append(devices, fmt.Sprintf(`{"name":"many%d","containerEdits":{"env":["MANY%d=1"]}}`, i, i))
		list = append(list, fmt.Sprintf("vendor.com/many=many%d", i))
	}
	var policy strings.Builder
	for i := range rules {
		fmt.Fprintf(&policy, "    - name: tenant-%d\n      for: {namespaces: [tenant-%d]}\n      allow:\n        cdi:\n", i, i)
		for j := range patterns {
			fmt.Fprintf(&policy, "          - \"*vendor*/*many*=*x%d-%d*\"\n", i, j)
		}
	}
	policy.WriteString("    - {name: last, for: {namespaces: [granted]}, allow: {cdi: [\"vendor.com/many=*\"]}}\n")
	testkit.Must(b, os.MkdirAll(filepath.Join(node.dir, "cdi"), 0o755))
	testkit.Must(b, os.WriteFile(filepath.Join(node.dir, "cdi/many.json"),
		[]byte(`{"cdiVersion":"0.6.0","kind":"vendor.com/many","devices":[`+strings.Join(devices, ",")+`]}`), 0o644))
	node.jackfieldWith(b, policy.String())
	annotations := map[string]string{"devices.jackfield.dev": strings.Join(list, ",")}
	refused, granted := node.container("refused", annotations), node.container("granted", annotations)
	refused.isRefused = true
	compare(b, refused, granted, "granted")
}

const staleInfo = `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:03:00.1"}}`

// compare creates containers on both sides in turn, and reports the two medians and their ratio.
// Each container is new. Its removal is not timed.
func compare(b *testing.B, ours, peer *container, name string) {
	for range 50 {
		ours.create(b)
		peer.create(b)
	}
	var mine, theirs []time.Duration
	for b.Loop() {
		mine = append(mine, ours.create(b))
		theirs = append(theirs, peer.create(b))
	}
	reportPair(b, mine, theirs, "µs", name+"-µs", time.Microsecond)
}

type nriNode struct {
	dir     string
	runtime *nritest.Runtime
}

func newNRI(b *testing.B) *nriNode {
	dir, err := os.MkdirTemp("", "jf")
	testkit.Must(b, err)
	b.Cleanup(func() { testkit.Must(b, os.RemoveAll(dir)) })
	return &nriNode{dir: dir, runtime: nritest.New(b, nritest.Options{})}
}

// jackfield starts the plugin with its own directories and ten CDI files.
func (n *nriNode) jackfield(b *testing.B) { n.jackfieldWith(b, "") }

// jackfieldWith starts the plugin with further rules.
func (n *nriNode) jackfieldWith(b *testing.B, rules string) {
	for _, d := range []string{"cdi", "vsw", "cni", "dp", "state"} {
		testkit.Must(b, os.MkdirAll(filepath.Join(n.dir, d), 0o755))
	}
	for i := range 10 {
		testkit.Must(b, os.WriteFile(filepath.Join(n.dir, fmt.Sprintf("cdi/d%d.json", i)), fmt.Appendf(nil,
			`{"cdiVersion":"0.6.0","kind":"vendor.com/net","devices":[{"name":"d%d","containerEdits":{"env":["D%d=1"],
			 "deviceNodes":[{"path":"/dev/d%d","type":"c","major":1,"minor":%d}],
			 "mounts":[{"hostPath":"/run/vendor","containerPath":"/opt/vendor%d","options":["ro","bind"]}]}}]}`, i, i, i, i+3, i), 0o644))
	}
	file := filepath.Join(n.dir, "config.yaml")
	testkit.Must(b, os.WriteFile(file, []byte(strings.ReplaceAll(`
cdi: {specDirs: [DIR/cdi]}
sockets: {roots: [DIR/vsw]}
deviceInfo: {cniDir: DIR/cni, dpDir: DIR/dp}
stateDir: DIR/state
metrics: {listen: "unix:DIR/metrics.sock"}
audit: {file: DIR/audit.log}
policy:
  rules:
    - name: r
      for: {namespaces: ["dpdk-*"]}
      allow: {cdi: ["vendor.com/net=*"], sockets: ["DIR/vsw/**"]}
`+rules, "DIR", n.dir)), 0o600))
	n.start(b, "50-jackfield", build(b, "../cmd/jackfield-nri"), "--config", file, "--nri-socket", n.runtime.SocketPath())
}

// build compiles a command of the test module, or of the product.
func build(b *testing.B, pkg string) string {
	b.Helper()
	root, err := parts.ModuleRoot(".")
	testkit.Must(b, err)
	bin := filepath.Join(b.TempDir(), filepath.Base(pkg))
	cmd := exec.Command("go", "build", "-tags", "grpcnotrace", "-buildvcs=false", "-o", bin, "./"+filepath.Base(pkg))
	cmd.Dir = filepath.Join(root, "test", filepath.Dir(pkg))
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
	return bin
}

// start runs a plugin until the benchmark ends.
func (n *nriNode) start(b *testing.B, name, bin string, args ...string) {
	b.Helper()
	cmd := exec.Command(bin, args...)
	cmd.Stderr = io.Discard
	stdin, err := cmd.StdinPipe()
	testkit.Must(b, err)
	testkit.Must(b, cmd.Start())
	b.Cleanup(func() {
		stdin.Close()
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	wait, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	testkit.Must(b, n.runtime.WaitPlugin(wait, name))
}

// attach writes device-info of a vhost-user and a memif socket for the pod.
func (n *nriNode) attach(b *testing.B, pod *api.PodSandbox) {
	for i, s := range []struct {
		kind vswitch.Kind
		info string
	}{
		{vswitch.VhostUser, `{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":"client","path":"DIR/vsw/p0/s"}}`},
		{vswitch.Memif, `{"type":"memif","version":"1.1.0","memif":{"role":"slave","mode":"ethernet","path":"DIR/vsw/p1/s"}}`},
	} {
		dir := filepath.Join(n.dir, fmt.Sprintf("vsw/p%d", i))
		testkit.Must(b, os.MkdirAll(dir, 0o755))
		server, err := vswitch.Listen(s.kind, filepath.Join(dir, "s"), "bench")
		testkit.Must(b, err)
		b.Cleanup(func() { testkit.Must(b, server.Close()) })
		name := fmt.Sprintf("%s-nad%d-%s_net%d", pod.Namespace, i, pod.Id, i)
		testkit.Must(b, os.WriteFile(filepath.Join(n.dir, "cni", name), []byte(strings.ReplaceAll(s.info, "DIR", n.dir)), 0o644))
	}
}

// container is a container that can be created repeatedly.
type container struct {
	runtime *nritest.Runtime
	pod     *api.PodSandbox
	ctr     *api.Container
	// isRefused is set if Jackfield must refuse to create the container.
	isRefused bool
}

func (n *nriNode) container(namespace string, annotations map[string]string) *container {
	pod := nritest.NewPod(namespace, "p", annotations)
	ctr := &api.Container{Id: nritest.NewID(), PodSandboxId: pod.Id, Name: "c", Args: []string{"sleep"}, Env: []string{"PATH=/bin"}, Linux: &api.LinuxContainer{}}
	return &container{runtime: n.runtime, pod: pod, ctr: ctr}
}

// create creates the container under a new ID, and returns how long that took.
func (c *container) create(tb testing.TB) time.Duration {
	ctr := proto.CloneOf(c.ctr) // the runtime applies the plugins' adjustments to it
	ctr.Id = nritest.NewID()
	start := time.Now()
	_, err := c.runtime.Adjust(context.Background(), c.pod, ctr)
	took := time.Since(start)
	if c.isRefused {
		if err == nil || !strings.Contains(err.Error(), "1024 problems") {
			tb.Fatalf("the container is not refused all that it requests: %v", err)
		}
		return took
	}
	testkit.Must(tb, err)
	testkit.Must(tb, c.runtime.RemoveContainer(context.Background(), c.pod, ctr))
	return took
}
