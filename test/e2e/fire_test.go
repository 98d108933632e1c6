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

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/vswitch"
)

var (
	firePods = flag.Int("fire.pods", 200, "pods of TestPodsUnderFire")
	fireKill = flag.Duration("fire.kill", 2*time.Second, "how often TestPodsUnderFire kills the plugin")
)

// Pods come and go, twenty at a time, while the plugin is killed and started again.
// Afterwards nothing is left.
//
// On the older runtimes a container either has working sockets, or was created while
// there was no plugin: they know no required plugin, and then it has nothing at all.
// Where the runtime knows them, each pod says that it requires the plugin: a container
// that is refused is tried again, as the kubelet does, and none comes up without.
func TestPodsUnderFire(t *testing.T) {
	e2e.Require(t)
	for _, g := range node.Generations() {
		t.Run(string(g), func(t *testing.T) {
			f := &fire{guarded: g == node.V24}
			o := node.Options{Generation: g}
			if f.guarded {
				o.Validator = &node.Validator{}
			}
			f.run(t, e2e.Fresh(t, o))
		})
	}
}

// fire is one run of TestPodsUnderFire.
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
	// The plugin itself is another process by the end.
	before := h.Look(looked...)

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
				time.Sleep(f.down())
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
			got, err := f.one(ctx, h, i)
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
		t.Errorf("%d kills and %d pods with sockets show nothing", kills, f.with.Load())
	}
	if f.guarded && f.refused.Load() == 0 {
		t.Error("nothing was refused, which shows nothing")
	}
	if f.guarded && f.without.Load() > 0 {
		t.Errorf("%d containers came up without what they asked for", f.without.Load())
	}
	for _, seen := range h.Look(looked...) {
		if strings.HasPrefix(seen, fmt.Sprintf("process %d ", p.PID())) {
			before = append(before, seen) // another process than at first
		}
	}
	h.NothingLeft(before, looked...)
}

// down is how long the plugin is: where it is required, long enough for containers to be
// refused.
func (f *fire) down() time.Duration {
	if f.guarded {
		return time.Second
	}
	return 100 * time.Millisecond
}

// create creates the pod's container, as the kubelet does: again, when it is refused.
func (f *fire) create(ctx context.Context, pod *node.Pod) (*node.Container, error) {
	end := time.Now().Add(2 * time.Minute)
	for i := 0; ; i++ {
		ctr, err := pod.Create(ctx, node.ContainerOptions{Attempt: uint32(i)})
		// Without a validator what fails a request is that the connection breaks under it;
		// where the machine is busy, and the plugin killed every other second, more than once.
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

// one runs a pod and says whether its container has what it was granted, which
// then has to work.
func (f *fire) one(ctx context.Context, h *e2e.H, i int) (got bool, err error) {
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
			err = errors.Join(err, os.Remove(fireFile(pod, iface)))
		}
	}()
	for iface, info := range files {
		// As Multus writes it: in place before the first container.
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
			return false, fmt.Errorf("%s: %d mounts and no environment: half of it", name, mounts)
		}
		return false, nil
	}
	for _, net := range []string{"NET1", "NET2"} {
		out, stderr, code, err := ctr.Exec(ctx, "sh", "-c", "sockclient connect $JACKFIELD_"+net+"_SOCKET")
		if err != nil || code != 0 || !strings.HasPrefix(out, "hello from") {
			return false, fmt.Errorf("%s: %s gives %q, %s: status %d, %v", name, net, out, stderr, code, err)
		}
	}
	out, stderr, code, err := ctr.Exec(ctx, "sh", "-c", "touch $(dirname $JACKFIELD_NET3_SOCKET)/x && ls "+fmt.Sprintf("/run/vsw/%s", name))
	if err != nil || code != 0 || strings.TrimSpace(out) != "x" {
		return false, fmt.Errorf("%s: its own directory gives %q, %s: status %d, %v", name, out, stderr, code, err)
	}
	return true, nil
}

func fireFile(pod *node.Pod, iface string) string {
	return filepath.Join(devinfoDir, fmt.Sprintf("%s-net-%s_%s", pod.Namespace(), pod.ID, iface))
}
