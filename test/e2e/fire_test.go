// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackfield/jackfield/test/compatibility"
	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/vswitch"
)

var (
	firePods = flag.Int("fire.pods", 80, "pods of TestPodsWhilePluginIsKilled")
	fireKill = flag.Duration("fire.kill", time.Second, "how often TestPodsWhilePluginIsKilled kills the plugin")
)

// Twenty pods at a time are created and removed, while the plugin is killed and started again. Nothing is
// left afterwards.
//
// Older runtimes do not support required plugins. There, a container has working sockets, or it has nothing
// because no plugin was connected when it was created. On newer runtimes each pod requires the plugin: a
// refused container is created again, as the kubelet does, and no container runs without its sockets.
func TestPodsWhilePluginIsKilled(t *testing.T) {
	e2e.Require(t)
	for _, g := range node.Generations() {
		t.Run(string(g), func(t *testing.T) {
			f := &fire{guarded: compatibility.RequiredPlugin().Has(g)}
			o := node.Options{Generation: g}
			if f.guarded {
				o.Validator = &node.Validator{}
			}
			f.run(t, e2e.Fresh(t, o))
		})
	}
}

// fire is one run of TestPodsWhilePluginIsKilled.
type fire struct {
	guarded bool
	// registering is held while a plugin registers: containerd 2.1 and 2.4 can hang
	// when a pod is removed meanwhile.
	registering            sync.RWMutex
	with, without, refused atomic.Int64
}

func (f *fire) run(t *testing.T, h *e2e.H) {
	h.MkdirAll("/run/vsw")
	for port := range 4 {
		h.Vswitch(vswitch.VhostUser, fmt.Sprintf("/run/vsw/port%d/vhost.sock", port), "vhost-user")
		h.Vswitch(vswitch.Memif, fmt.Sprintf("/run/vsw/memif%d/memif.sock", port), "memif")
	}
	h.MkdirAll(devinfoDir)
	p := h.StartPlugin(node.PluginOptions{Config: nodeConfig})
	// At the end, the plugin is another process.
	before := inventory(h)

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	var kills int
	over := make(chan struct{})
	fired := make(chan error, 1)
	go func() {
		fired <- func() error {
			for {
				select {
				case <-over:
					return nil
				case <-time.After(*fireKill):
				}
				p.Kill()
				kills++
				time.Sleep(f.downtime())
				f.registering.Lock()
				err := p.Plugin.Start(ctx)
				f.registering.Unlock()
				if err != nil {
					return err
				}
			}
		}()
	}()

	var errs []error
	var mu sync.Mutex
	var wg sync.WaitGroup
	turn := make(chan struct{}, 20)
	for i := range *firePods {
		wg.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			got, err := f.runPod(ctx, h, i)
			switch {
			case err != nil:
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			case got:
				f.with.Add(1)
			default:
				f.without.Add(1)
			}
		})
	}
	wg.Wait()
	close(over)
	if err := <-fired; err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %d pods, the plugin killed %d times: %d with working sockets, %d created while there was no plugin, %d times refused",
		h.Generation(), *firePods, kills, f.with.Load(), f.without.Load(), f.refused.Load())
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	if kills == 0 || f.with.Load() == 0 {
		t.Errorf("%d kills and %d pods with sockets are too few for the test", kills, f.with.Load())
	}
	if f.guarded && f.refused.Load() == 0 {
		t.Error("no container was refused: the plugin was never down when one was created")
	}
	if f.guarded && f.without.Load() > 0 {
		t.Errorf("%d containers were created without what they requested", f.without.Load())
	}
	nothingLeft(h, p, before)
}

// nothingLeft checks that nothing is left that is not in before. The plugin and the runtime can be other processes than
// before.
func nothingLeft(h *e2e.H, p *e2e.Plugin, before []string) {
	for _, seen := range h.Inventory(inventoryDirs...) {
		for _, pid := range []int{p.PID(), h.PID()} {
			if strings.HasPrefix(seen, fmt.Sprintf("process %d ", pid)) {
				before = append(before, seen)
			}
		}
	}
	h.NothingLeft(before, inventoryDirs...)
}

// downtime is how long the plugin is down. Where it is required, this is long enough for containers to be
// refused.
func (f *fire) downtime() time.Duration {
	if f.guarded {
		return time.Second
	}
	return 100 * time.Millisecond
}

// create creates the pod's container. If the container is refused it is created again, as the kubelet does.
func (f *fire) create(ctx context.Context, pod *node.Pod) (*node.Container, error) {
	end := time.Now().Add(2 * time.Minute)
	for i := 0; ; i++ {
		ctr, err := pod.Create(ctx, node.ContainerOptions{Attempt: uint32(i)})
		// Without a validator, a request fails if its connection breaks. The plugin is killed every
		// second, so on a busy machine this may happen to a container more than once.
		if err == nil || time.Now().After(end) || !f.guarded && (i == 10 || i > 0 && strings.Contains(err.Error(), "jackfield: ") && !e2e.TooLate(err)) {
			return ctr, err
		}
		if f.guarded {
			if !strings.Contains(err.Error(), notPresent) && !strings.Contains(err.Error(), "validator plugin 10-jackfield failed") {
				return nil, fmt.Errorf("refused for another reason: %w", err)
			}
			f.refused.Add(1)
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// runPod runs a pod and reports whether its container has its sockets. Sockets that it has must work.
func (f *fire) runPod(ctx context.Context, h *e2e.H, i int) (got bool, err error) {
	name := fmt.Sprintf("pod-%d", i)
	options := node.PodOptions{Name: name, Namespace: "dpdk-1"}
	if f.guarded {
		options.Annotations = map[string]string{requiredKey: "[jackfield]"}
	}
	pod, err := h.Node.RunPod(ctx, options)
	if err != nil {
		return false, fmt.Errorf("%s: %w", name, err)
	}
	files := map[string]string{
		"net1": vhostUser("client", fmt.Sprintf("/run/vsw/port%d/vhost.sock", i%4)),
		"net2": memif("slave", fmt.Sprintf("/run/vsw/memif%d/memif.sock", i%4)),
		"net3": vhostUser("server", fmt.Sprintf("/run/vsw/%s/app.sock", name)),
	}
	defer func() {
		f.registering.RLock()
		defer f.registering.RUnlock()
		err = errors.Join(err, pod.Remove(context.WithoutCancel(ctx)))
		for iface := range files {
			err = errors.Join(err, removeFireFile(pod, iface))
		}
	}()
	for iface, info := range files {
		// The file is in place before the first container, as with Multus.
		if err := os.WriteFile(fireFile(pod, iface), []byte(info), 0o644); err != nil {
			return false, err
		}
	}
	ctr, err := f.create(ctx, pod)
	if err != nil {
		return false, fmt.Errorf("%s: %w", name, err)
	}
	if err := ctr.Start(ctx); err != nil {
		return false, fmt.Errorf("%s: %w", name, err)
	}
	spec, err := ctr.OCISpec(ctx)
	if err != nil {
		return false, fmt.Errorf("%s: %w", name, err)
	}
	mounts := 0
	for _, m := range spec.Mounts {
		if strings.HasPrefix(m.Destination, "/var/run/jackfield") || strings.HasPrefix(m.Destination, "/run/vsw/") {
			mounts++
		}
	}
	if _, told := node.Env(spec, "JACKFIELD_NET1_SOCKET"); !told {
		if mounts > 0 {
			return false, fmt.Errorf("%s: %d mounts and no environment: the container was injected in part", name, mounts)
		}
		return false, nil
	}
	for _, net := range []string{"NET1", "NET2"} {
		out, stderr, code, err := ctr.Exec(ctx, "sh", "-c", "sockclient connect $JACKFIELD_"+net+"_SOCKET")
		if err != nil || code != 0 || !strings.HasPrefix(out, "hello from") {
			return false, fmt.Errorf("%s: %s answers %q, %s: status %d, %v", name, net, out, stderr, code, err)
		}
	}
	out, stderr, code, err := ctr.Exec(ctx, "sh", "-c", "touch $(dirname $JACKFIELD_NET3_SOCKET)/x && ls "+fmt.Sprintf("/run/vsw/%s", name))
	if err != nil || code != 0 || strings.TrimSpace(out) != "x" {
		return false, fmt.Errorf("%s: its own directory has %q, %s: status %d, %v", name, out, stderr, code, err)
	}
	return true, nil
}

// removeFireFile removes a file that the plugin may have removed with the sandbox.
func removeFireFile(pod *node.Pod, iface string) error {
	err := os.Remove(fireFile(pod, iface))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

func fireFile(pod *node.Pod, iface string) string {
	return filepath.Join(devinfoDir, fmt.Sprintf("%s-net-%s_%s", pod.Namespace(), pod.ID, iface))
}
