// SPDX-License-Identifier: Apache-2.0

package nritest_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/pkg/cdi"
	nritest "github.com/jackfield/jackfield/test/nri"
	"github.com/jackfield/jackfield/test/vswitch"
)

// Whatever a pod's author writes, the answer comes before the runtime's deadline, after which NRI
// drops a plugin. It is short enough for an event, and the next pod is served.
func TestHugeAnnotationsAreAnsweredInTime(t *testing.T) {
	n := newNode(t, policyYAML+"compat: {deviceInjector: true}\n", nritest.Options{})
	check(t, os.WriteFile(n.path("/etc/cdi/v.json"), []byte(`{"cdiVersion":"0.6.0","kind":"vendor.com/net","devices":[{"name":"a","containerEdits":{"env":["A=1"]}}]}`), 0o644))
	deep := strings.Repeat("[", 10000)
	many := strings.TrimSuffix(strings.Repeat("vendor.com/net=a,", 10000), ",")
	different := strings.Builder{}
	for i := range 10000 {
		fmt.Fprintf(&different, "- vendor.com/net=a%d\n", i)
	}
	for name, annotations := range map[string]map[string]string{
		"10,000 requests":           {"devices.jackfield.dev": many},
		"10,000 different requests": {"devices.jackfield.dev": different.String()},
		"1,024 different requests":  {"devices.jackfield.dev": strings.Join(strings.Split(different.String(), "\n")[:1024], "\n")},
		"256 KiB in one":            {"devices.jackfield.dev": strings.Repeat("x", 256<<10)},
		"256 KiB of CDI's":          {"cdi.k8s.io/x": strings.Repeat("vendor.com/net=a,", 15000)},
		"deep":                      {"devices.jackfield.dev": deep},
		"aliases":                   {"devices.jackfield.dev": "- &a [x,x]\n- &b [*a,*a]\n- &c [*b,*b]\n- [*c,*c]"},
		"10,000 networks":           {"networks.jackfield.dev": strings.TrimSuffix(strings.Repeat("net1,", 10000), ",")},
		"256 KiB of networks":       {"k8s.v1.cni.cncf.io/networks": strings.Repeat("a,", 128<<10), "networks.jackfield.dev": "net1"},
		"10,000 nodes":              {"devices.nri.io": strings.Repeat("- {path: /dev/null, type: c, major: 1, minor: 3}\n", 10000)},
		"a terminal's":              {"devices.jackfield.dev": "\x1b[2J\u202e" + strings.Repeat("\x00", 1000)},
	} {
		pod := nritest.NewPod("dpdk-a", "fwd-0", annotations)
		started := testkit.CPU()
		check(t, n.runtime.RunPodSandbox(t.Context(), pod))
		_, err := n.runtime.CreateContainer(t.Context(), pod, &api.Container{Name: "app"})
		if err == nil {
			t.Errorf("%s: the container was created", name)
			continue
		}
		// What it costs, in the time that this process had of a processor: that is the
		// same on a busy machine.
		if took := testkit.CPU() - started; took > 2*time.Second {
			t.Errorf("%s: the answer took %v of a processor", name, took)
		}
		if strings.ContainsAny(err.Error(), "\x1b\u202e\x00") {
			t.Errorf("%s: the error draws on terminals: %q", name, err)
		}
		if n.runtime.Plugins() != 1 {
			t.Fatalf("%s: the runtime dropped the plugin", name)
		}
	}
	good := nritest.NewPod("dpdk-a", "fwd-1", map[string]string{"devices.jackfield.dev": "vendor.com/net=a"})
	check(t, n.runtime.RunPodSandbox(t.Context(), good))
	_, err := n.runtime.CreateContainer(t.Context(), good, &api.Container{Name: "app"})
	check(t, err)
}

// The files of a sandbox are found among 100,000 device-info files of other sandboxes within the
// runtime's deadline of two seconds.
func TestSandboxIsFoundAmongManyDeviceInfoFiles(t *testing.T) {
	const dir = "/run/k8s.cni.cncf.io/devinfo/cni/"
	n := preparedNode(t, policyYAML, nritest.Options{}, func(n *node) {
		ownFileSystem(t, n.path(dir))
		fill(t, n.path(dir), func(i int) string { return fmt.Sprintf("ns-nad-%064x_net1", i) }, nil)
		n.listen(vswitch.VhostUser, "/run/vsw/a/s.sock")
	})
	for i := range 3 {
		pod := nritest.NewPod("dpdk-a", fmt.Sprintf("fwd-%d", i), map[string]string{"networks.jackfield.dev": "net1"})
		check(t, os.WriteFile(n.path(dir+"dpdk-a-net-"+pod.GetId()+"_net1"), []byte(
			`{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":"client","path":"/var/run/vsw/a/s.sock"}}`), 0o644))
		check(t, n.runtime.RunPodSandbox(t.Context(), pod))
		began := testkit.CPU()
		created, err := n.create(pod, nil)
		check(t, err)
		took := testkit.CPU() - began
		if t.Logf("container %d: %v of a processor", i, took); took > 2*time.Second {
			t.Errorf("container %d: the answer took %v of a processor", i, took)
		}
		if n.runtime.Plugins() != 1 {
			t.Fatal("the runtime dropped the plugin")
		}
		if len(created.Adjust.GetMounts()) == 0 {
			t.Error("the socket did not come")
		}
	}
}

// 100,000 CDI files take longer to read than a runtime waits. The plugin still starts within the
// runtime's deadline. While it reads, a container that requests a device is refused in time and gets
// the device at a later attempt. A container that requests nothing is created.
//
// The runtime waits for two seconds. How late the plugin may be depends on how long it takes to read
// the files, and on how late this process is on a busy machine.
func TestManyCDIFilesAreAnsweredInTime(t *testing.T) {
	var began time.Time
	var read, before time.Duration
	late := lateness(t)
	n := preparedNode(t, policyYAML, nritest.Options{RequestTimeout: 2 * time.Second}, func(n *node) {
		fill(t, n.path("/etc/cdi"), func(i int) string { return fmt.Sprintf("f%06d.json", i) }, func(i int) []byte {
			return fmt.Appendf(nil, `{"cdiVersion":"0.6.0","kind":"vendor.com/net","devices":[{"name":"d%d","containerEdits":{"env":["D=%d"]}}]}`, i, i)
		})
		began = time.Now()
		r, err := cdi.NewCache(cdi.Options{Root: n.host().Dir(), SpecDirs: []string{"/etc/cdi"}})
		check(t, err)
		_, err = r.Snapshot().Device("vendor.com/net=d0")
		check(t, errors.Join(err, r.Close()))
		read = time.Since(began)
		began, before = time.Now(), late()
	})
	took := time.Since(began)
	t.Logf("registered after %v; reading the files takes %v", took, read)
	if took > max(5*time.Second, read/2)+late()-before {
		t.Errorf("registered after %v", took)
	}
	if _, err := n.create(n.pod("dpdk-a", nil), nil); err != nil {
		t.Errorf("a container without requests: %v", err)
	}
	for i, device := range []string{"d0", "d99999", "d50000"} {
		created := n.createdInTime(nritestPod(n, "vendor.com/net="+device), max(4*time.Second, read/2), late, fmt.Sprintf("container %d", i))
		if want := "D=" + device[1:]; !slices.Contains(created.Spec.Process.Env, want) {
			t.Errorf("%s: found %v, want %s", device, created.Spec.Process.Env, want)
		}
	}
	// One file more is found at once, and one device that is not there is said not to be.
	n.write("/etc/cdi/new.json", `{"cdiVersion":"0.6.0","kind":"vendor.com/net","devices":[{"name":"new","containerEdits":{"env":["D=new"]}}]}`)
	n.createdInTime(nritestPod(n, "vendor.com/net=new"), max(4*time.Second, read/2), late, "a new file")
	_, err := n.create(nritestPod(n, "vendor.com/net=none"), nil)
	for limit := time.Now().Add(5 * time.Minute); timedOut(err) && time.Now().Before(limit); {
		_, err = n.create(nritestPod(n, "vendor.com/net=none"), nil)
	}
	if err == nil || !strings.Contains(err.Error(), "vendor.com/net=none") {
		t.Errorf("a device that is not there: %v", err)
	}
	if n.runtime.Plugins() != 1 {
		t.Error("the runtime dropped the plugin")
	}
}

func nritestPod(n *node, device string) *api.PodSandbox {
	return n.pod("dpdk-a", map[string]string{"devices.jackfield.dev": device})
}

// ownFileSystem puts the directory on a file system of its own where that is allowed,
// with which 100,000 empty files go at once.
func ownFileSystem(t *testing.T, dir string) {
	t.Helper()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755,nr_inodes=200000"); err != nil {
		t.Logf("on the file system of the temporary directory: %v", err)
		return
	}
	t.Cleanup(func() { check(t, unix.Unmount(dir, unix.MNT_DETACH)) })
}

// lateness tells how late this process was, all in all, for what it wanted to do every
// five milliseconds.
func lateness(t *testing.T) func() time.Duration {
	var late atomic.Int64
	go func() {
		const every = 5 * time.Millisecond
		for before := time.Now(); t.Context().Err() == nil; {
			time.Sleep(every)
			now := time.Now()
			late.Add(int64(now.Sub(before) - every))
			before = now
		}
	}()
	return func() time.Duration { return time.Duration(late.Load()) }
}

// fill makes 100,000 files.
func fill(t *testing.T, dir string, name func(i int) string, content func(i int) []byte) {
	t.Helper()
	for i := range 100_000 {
		var data []byte
		if content != nil {
			data = content(i)
		}
		check(t, os.WriteFile(filepath.Join(dir, name(i)), data, 0o644))
	}
}

// createdInTime makes a container, at as many attempts as the kubelet would make.
// None may be answered after the deadline, and what this process is late for
// everything: the plugin would be dropped.
func (n *node) createdInTime(pod *api.PodSandbox, deadline time.Duration, late func() time.Duration, what string) *nritest.Created {
	n.t.Helper()
	for attempt := 1; ; attempt++ {
		began, before := time.Now(), late()
		created, err := n.create(pod, nil)
		took := time.Since(began)
		if n.runtime.Plugins() != 1 {
			n.t.Fatalf("%s: the runtime dropped the plugin after %v: %v", what, took, err)
		}
		if allowed := deadline + late() - before; took > allowed {
			n.t.Fatalf("%s: attempt %d was answered after %v, which is later than %v: %v", what, attempt, took, allowed, err)
		}
		if err == nil {
			n.t.Logf("%s: %v, at attempt %d", what, took, attempt)
			return created
		}
		if !strings.Contains(err.Error(), "given up before the runtime's deadline") || attempt == 100 {
			n.t.Fatalf("%s: attempt %d: %v", what, attempt, err)
		}
	}
}
