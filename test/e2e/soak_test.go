// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/vswitch"
)

var (
	soakPods    = flag.Int("soak.pods", 0, "pods of a soak; 0: 80, or 24 if the plugin restarts")
	soakRestart = flag.Duration("soak.restart", 3*time.Second, "how often a soak restarts the runtime, on average")
	soakPlugin  = flag.Duration("soak.plugin", 2*time.Second, "how often TestSoakWhilePluginRestarts restarts the plugin, on average")
	soakRuntime = flag.String("soak.runtime", string(node.V2), "runtime of a soak")
)

// soakPorts are the ports of the vswitch. Each has a vhost-user and a memif socket.
const soakPorts = 4

// soakRequest is the runtime's time limit for a request. soakReload is the interval of configuration changes,
// two of three of which are valid. At this rate, no more than the eight replaced configurations that are
// always kept are younger than a request can be.
const (
	soakRequest = 5 * time.Second
	soakReload  = 420 * time.Millisecond
)

const soakConfig = `
sockets: {roots: [/var/run/vsw]}
metrics: {listen: "unix:/run/soak.sock", pprof: true}
policy:
  rules:
    - name: dpdk-tenants
      for:   {namespaces: ["dpdk-*"]}
      allow:
        cdi:     ["vendor.com/net=*", "vendor.com/churn=*"]
        sockets: ["/var/run/vsw/**"]
`

// The test creates pods, ten at a time. Meanwhile the policy is reloaded, CDI files are written and removed, and the
// vswitch and the runtime restart. Each container compares what it has with what it requested. After each quarter, the
// plugin holds no more than after the first.
func TestSoakKeepsResourcesConstant(t *testing.T) {
	s := startSoak(t, 80)
	before := inventory(s.h)
	const quarters = 4
	var takes []held
	for q := range quarters {
		s.runPods(t.Context(), q*s.pods/quarters, (q+1)*s.pods/quarters)
		takes = append(takes, s.measure(func(now held) bool { return q == 0 || len(s.grown(takes[0], now)) == 0 }))
		t.Logf("after %d pods: %v", (q+1)*s.pods/quarters, takes[q])
	}
	s.end()
	s.judge(takes)
	s.nothingLeft(before)
}

// As [TestSoakKeepsResourcesConstant], while the plugin restarts as well. What a process of the plugin holds is not
// compared, because no process lives long.
func TestSoakWhilePluginRestarts(t *testing.T) {
	s := startSoak(t, 24)
	before := inventory(s.h)
	s.disturb(s.restartPlugin)
	s.runPods(t.Context(), 0, s.pods)
	for s.pluginRestarts.Load() == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	s.end()
	s.nothingLeft(before)
}

// soak is the state of a run.
type soak struct {
	t    *testing.T
	h    *e2e.H
	p    *e2e.Plugin
	pods int

	ctx     context.Context // of the disturbances
	stop    func()
	trouble sync.WaitGroup

	runtime sync.RWMutex // held for writing while the runtime or the plugin restarts
	plugin  sync.RWMutex // held for writing while the plugin restarts
	mu      sync.Mutex
	errs    []error
	state   []string // state files at the last measurement

	right, refused, restarts, pluginRestarts, good, bad, files, vswitches atomic.Int64
}

// startSoak starts a runtime with the plugin, and the disturbances of every soak.
func startSoak(t *testing.T, pods int) *soak {
	t.Helper()
	e2e.Require(t)
	// A replaced configuration is held for at least the time limit of a request. With the default limit of
	// the nodes, and this rate of reloads, dozens would be held.
	h := e2e.Fresh(t, node.Options{Generation: node.Generation(*soakRuntime), PluginRequestTimeout: soakRequest})
	h.MkdirAll("/run/vsw")
	h.MkdirAll(devinfoDir)
	h.MkdirAll("/etc/cdi")
	h.CharDevice("/run/devs/zero", 1, 5)
	h.WriteFile("/etc/cdi/net.json", soakDevices("net", 16))
	s := &soak{t: t, h: h, p: h.StartPlugin(node.PluginOptions{Config: soakConfig}), pods: cmp.Or(*soakPods, pods)}
	s.ctx, s.stop = context.WithCancel(t.Context())
	for _, f := range []func(context.Context) error{s.reload, s.churn, s.vswitch, s.restart} {
		s.disturb(f)
	}
	// Replaced configurations are held until they are closed. Replace enough of them before the first quarter
	// ends.
	for end := time.Now().Add(5 * time.Minute); s.vswitches.Load() == 0 || s.good.Load() < 14; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after five minutes %d configurations were in force", s.good.Load())
		}
	}
	return s
}

// disturb calls f, which returns when its context ends, in the background.
func (s *soak) disturb(f func(context.Context) error) {
	s.trouble.Go(func() {
		if err := f(s.ctx); err != nil && s.ctx.Err() == nil {
			s.addError(err)
		}
	})
}

// end ends the disturbances, and reports what happened.
func (s *soak) end() {
	s.t.Helper()
	s.stop()
	s.trouble.Wait()
	s.t.Logf("%d pods: %d correct, %d refused as expected, %d failed; %d restarts of the runtime and %d of the plugin, %d policies in force and %d refused, %d CDI files, %d restarts of the vswitch",
		s.pods, s.right.Load(), s.refused.Load(), len(s.errs), s.restarts.Load(), s.pluginRestarts.Load(), s.good.Load(), s.bad.Load(), s.files.Load(), s.vswitches.Load())
	for _, err := range s.errs {
		s.t.Error(err)
	}
	if s.restarts.Load() == 0 || s.good.Load() == 0 || s.bad.Load() == 0 {
		s.t.Error("the run was too short for restarts and reloads")
	}
}

// nothingLeft checks that nothing is left that is not in before, except for shims: when containerd starts on a busy
// machine, it abandons a shim that does not respond in time.
func (s *soak) nothingLeft(before []string) {
	s.t.Helper()
	for _, seen := range s.h.Inventory(inventoryDirs...) {
		if strings.HasPrefix(seen, "process ") && strings.Contains(seen, "/containerd-shim-runc-v2 ") {
			before = append(before, seen)
		}
	}
	nothingLeft(s.h, s.p, before)
}

func (s *soak) addError(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errs = append(s.errs, err)
}

// runPods runs pods from one number to another, ten at a time.
func (s *soak) runPods(ctx context.Context, from, to int) {
	turn := make(chan struct{}, 10)
	var wg sync.WaitGroup
	for i := from; i < to; i++ {
		turn <- struct{}{}
		wg.Go(func() {
			defer func() { <-turn }()
			if err := s.pod(ctx, i); err != nil {
				s.addError(fmt.Errorf("pod %d: %w", i, err))
			}
		})
	}
	wg.Wait()
}

// wish is what a pod requests, and what its container must have, with nothing else.
type wish struct {
	namespace, devices string
	info               map[string]string // device-info by interface
	file               string            // a CDI file written just before
	env                []string          // of all that begins with SOAK_ or JACKFIELD_NET
	refused            bool
	try                func(context.Context, *node.Container) error
}

func soakWish(i int) wish {
	port := i % soakPorts
	w := wish{namespace: "dpdk-1"}
	switch i % 6 {
	case 0: // a device
		w.devices = fmt.Sprintf("vendor.com/net=dev%d", i%16)
		w.env = []string{fmt.Sprintf("SOAK_net=dev%d", i%16)}
		w.try = expect("head -c 4 /dev/soak-net | xxd -p", "00000000")
	case 1: // two sockets that the host creates
		w.info = map[string]string{
			"net1": vhostUser("client", fmt.Sprintf("/run/vsw/port%d/vhost.sock", port)),
			"net2": memif("slave", fmt.Sprintf("/run/vsw/memif%d/memif.sock", port))}
		w.try = func(ctx context.Context, c *node.Container) error {
			return errors.Join(expect("sockclient connect $JACKFIELD_NET1_SOCKET", vswitch.Greeting(fmt.Sprintf("port%d", port)))(ctx, c),
				expect("sockclient connect $JACKFIELD_NET2_SOCKET", vswitch.Greeting(fmt.Sprintf("memif%d", port)))(ctx, c))
		}
	case 2: // a socket that the application creates
		path := fmt.Sprintf("/run/vsw/own%d/app.sock", i)
		w.info = map[string]string{"net1": vhostUser("server", path)}
		w.try = func(ctx context.Context, c *node.Container) error {
			err := expect("(sockclient listen $JACKFIELD_NET1_SOCKET mine >/dev/null 2>&1 &) ; until test -S $JACKFIELD_NET1_SOCKET; do sleep 0.01; done; echo up", "up")(ctx, c)
			if err != nil {
				return err
			}
			if got, err := vswitch.Ask(ctx, path); err != nil || got != "mine" {
				return fmt.Errorf("the application's socket answers %q: %w", got, err)
			}
			return nil
		}
	case 3: // refused
		w.namespace, w.devices, w.refused = "web", "vendor.com/net=dev1", true
	case 4: // nothing
		w.try = expect("ls /var/run/jackfield 2>/dev/null | wc -l", "0")
	case 5: // a device whose spec was just written
		w.devices, w.file = fmt.Sprintf("vendor.com/churn=pod%d", i), fmt.Sprintf("/etc/cdi/pod-%d.json", i)
		w.env = []string{fmt.Sprintf("SOAK_churn=pod%d", i)}
	}
	return w
}

// expect runs a command until it prints the wanted text, because the vswitch may be restarting.
func expect(line, want string) func(context.Context, *node.Container) error {
	return func(ctx context.Context, c *node.Container) error {
		for end := time.Now().Add(node.Patience); ; time.Sleep(20 * time.Millisecond) {
			out, errs, _, err := c.Exec(ctx, "sh", "-c", line)
			if err != nil {
				return err
			}
			if strings.TrimSpace(out) == want {
				return nil
			}
			if time.Now().After(end) {
				return fmt.Errorf("%q prints %q and %q, want %q", line, out, errs, want)
			}
		}
	}
}

// call calls f while neither the runtime nor the plugin is restarting.
func (s *soak) call(f func() error) error {
	s.runtime.RLock()
	defer s.runtime.RUnlock()
	return f()
}

func (s *soak) pod(ctx context.Context, i int) (err error) {
	w := soakWish(i)
	o := node.PodOptions{Name: fmt.Sprintf("soak-%d", i), Namespace: w.namespace}
	if w.devices != "" {
		o.Annotations = map[string]string{"devices.jackfield.dev": w.devices}
	}
	var pod *node.Pod
	if err := s.call(func() (err error) { pod, err = s.h.Node.RunPod(ctx, o); return }); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, s.call(func() error { return pod.Remove(context.WithoutCancel(ctx)) }))
		for iface := range w.info {
			err = errors.Join(err, removeFireFile(pod, iface))
		}
		if w.file != "" {
			err = errors.Join(err, os.Remove(w.file))
		}
	}()
	for iface, info := range w.info {
		if err := os.WriteFile(fireFile(pod, iface), []byte(info), 0o644); err != nil {
			return err
		}
	}
	if w.file != "" {
		name := strings.TrimPrefix(w.devices, "vendor.com/churn=")
		if err := writeRenamed(w.file, soakDevice("churn", name)); err != nil {
			return err
		}
	}
	var ctr *node.Container
	err = s.call(func() (err error) { ctr, err = pod.Create(ctx, node.ContainerOptions{}); return })
	if w.refused {
		if err == nil || !strings.Contains(err.Error(), "dpdk-tenants") {
			return fmt.Errorf("the container was not refused as expected: %w", err)
		}
		s.refused.Add(1)
		return nil
	}
	if err == nil {
		err = s.call(func() error { return ctr.Start(ctx) })
	}
	if err != nil {
		return err
	}
	// One call: containerd does not restart between the exec and its answer.
	if err := s.call(func() error { return check(ctx, ctr, w) }); err != nil {
		return err
	}
	s.right.Add(1)
	return nil
}

// check compares what a container has with what it requested.
func check(ctx context.Context, ctr *node.Container, w wish) error {
	spec, err := ctr.OCISpec(ctx)
	if err != nil {
		return err
	}
	var env []string
	for _, e := range spec.Process.Env {
		if strings.HasPrefix(e, "SOAK_") {
			env = append(env, e)
		}
	}
	if !slices.Equal(env, w.env) {
		return fmt.Errorf("the environment has %q, want %q", env, w.env)
	}
	var got, want []string
	for _, m := range spec.Mounts {
		if m.Destination == "/var/run/jackfield" {
			got = append(got, m.Destination)
		}
	}
	if len(w.info) > 0 {
		want = []string{"/var/run/jackfield"}
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("mounts %q, want %q", got, want)
	}
	for _, d := range spec.Linux.Devices {
		if strings.HasPrefix(d.Path, "/dev/soak-") && !strings.HasPrefix(w.devices, "vendor.com/"+strings.TrimPrefix(d.Path, "/dev/soak-")+"=") {
			return fmt.Errorf("the container has the device %q, and requested %q", d.Path, w.devices)
		}
	}
	if w.try == nil {
		return nil
	}
	return w.try(ctx, ctr)
}

// soakDevices returns a CDI file with n devices, and soakDevice one with a single device.
func soakDevices(class string, n int) string {
	var devices []string
	for i := range n {
		devices = append(devices, deviceOf(class, fmt.Sprintf("dev%d", i)))
	}
	return cdiFile(class, devices)
}

func soakDevice(class, name string) string { return cdiFile(class, []string{deviceOf(class, name)}) }

func deviceOf(class, name string) string {
	return fmt.Sprintf(`{"name":%q,"containerEdits":{"env":["SOAK_%s=%s"],"deviceNodes":[{"path":"/dev/soak-%s","hostPath":"/run/devs/zero"}]}}`, name, class, name, class)
}

func cdiFile(class string, devices []string) string {
	return fmt.Sprintf(`{"cdiVersion":"0.6.0","kind":"vendor.com/%s","devices":[%s]}`, class, strings.Join(devices, ","))
}

// writeRenamed writes a file and renames it into place.
func writeRenamed(path, text string) error {
	tmp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	return errors.Join(os.WriteFile(tmp, []byte(text), 0o600), os.Rename(tmp, path))
}
